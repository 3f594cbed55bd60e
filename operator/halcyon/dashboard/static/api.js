// What is asked of the operator: documents, and streams of them that come back by themselves.

import { sentence } from "./dom.js";

export class Refused extends Error {
  /** @param {number} status of HTTP; 0 where there was no answer @param {string} message */
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/**
 * A document.
 * @param {string} path
 * @param {RequestInit} [options]
 * @returns {Promise<any>}
 * @throws {Refused} with the operator's own sentence
 */
export async function get(path, options = {}) {
  let answer;
  try {
    answer = await fetch(path, { credentials: "same-origin", ...options });
  } catch {
    throw new Refused(0, "The operator can't be reached.");
  }
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Refused(answer.status, body.error || `${answer.status} ${answer.statusText}`);
  return body;
}

/** @param {string} namespace @param {string} name */
export function modelPath(namespace, name) {
  return `${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;
}

const AGAIN_MS = 5000;

/**
 * A stream of documents. A browser comes back after a connection that broke, but not after a refusal: then we do, and tell why.
 * @param {string} path of the stream
 * @param {string} plain path of the document itself: it tells why there is no stream
 * @param {string} event
 * @param {{document: (value: any) => void, state: (live: boolean, why: string) => void, refused: (error: Refused) => void}} heard
 * @returns {() => void} ends it
 */
export function follow(path, plain, event, heard) {
  /** @type {EventSource | null} */
  let source = null;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  let ended = false;

  function open() {
    const stream = (source = new EventSource(path));
    stream.addEventListener(event, (message) => {
      heard.state(true, "");
      heard.document(JSON.parse(message.data));
    });
    stream.addEventListener("over", (message) => {
      stream.close();
      heard.state(false, JSON.parse(message.data).error);
      ask();
    });
    stream.onerror = () => {
      heard.state(false, "The connection is lost; trying again.");
      if (stream.readyState === EventSource.CLOSED) ask();
    };
  }

  /** The document itself: what is refused is said, and what isn't is shown until there is a stream again. */
  async function ask() {
    try {
      const document = await get(plain);
      if (ended) return;
      heard.document(document);
      heard.state(false, "Updates every 5 s: the operator gives no stream now.");
    } catch (error) {
      if (ended) return;
      if (error instanceof Refused && [401, 403, 404].includes(error.status)) {
        heard.refused(error);
        if (error.status === 401) return;
      } else heard.state(false, sentence(error));
    }
    timer = setTimeout(open, AGAIN_MS);
  }

  open();
  return () => {
    ended = true;
    clearTimeout(timer);
    source?.close();
  };
}
