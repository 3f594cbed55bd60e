// Requests to the operator: documents, and streams of documents that reconnect by themselves.

import { errorMessage } from "./dom.js";

export class RequestError extends Error {
  /** @param {number} status HTTP status; 0 if there was no response @param {string} message */
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/**
 * Requests a document.
 * @param {string} path
 * @param {RequestInit} [options]
 * @returns {Promise<any>}
 * @throws {RequestError} with the operator's error message
 */
export async function get(path, options = {}) {
  let response;
  try {
    response = await fetch(path, { credentials: "same-origin", ...options });
  } catch {
    throw new RequestError(0, "The operator can't be reached.");
  }
  const body = await response.json().catch(() => ({}));
  if (!response.ok) throw new RequestError(response.status, body.error || `${response.status} ${response.statusText}`);
  return body;
}

/** @param {string} namespace @param {string} name */
export function modelPath(namespace, name) {
  return `${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;
}

const RETRY_MS = 5000;

/**
 * Follows a stream of documents. Browsers reconnect a broken stream, but not one that was rejected: this function then polls the
 * document, which gives the reason, and opens the stream again later.
 * @param {string} path of the stream
 * @param {string} plainPath of the document itself
 * @param {string} event
 * @param {{document: (value: any) => void, state: (live: boolean, why: string) => void, failed: (error: RequestError) => void}} listener
 * @returns {() => void} ends the stream
 */
export function follow(path, plainPath, event, listener) {
  /** @type {EventSource | null} */
  let source = null;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  let ended = false;

  function open() {
    const stream = (source = new EventSource(path));
    stream.addEventListener(event, (message) => {
      listener.state(true, "");
      listener.document(JSON.parse(message.data));
    });
    stream.addEventListener("over", (message) => {
      stream.close();
      listener.state(false, JSON.parse(message.data).error);
      poll();
    });
    stream.onerror = () => {
      listener.state(false, "Connection lost; reconnecting.");
      if (stream.readyState === EventSource.CLOSED) poll();
    };
  }

  /** Requests the document itself: shows it until the stream is open again, or reports the error. */
  async function poll() {
    try {
      const document = await get(plainPath);
      if (ended) return;
      listener.document(document);
      listener.state(false, "Updates every 5 s: no live stream is available now.");
    } catch (error) {
      if (ended) return;
      if (error instanceof RequestError && [401, 403, 404].includes(error.status)) {
        listener.failed(error);
        if (error.status === 401) return;
      } else listener.state(false, errorMessage(error));
    }
    timer = setTimeout(open, RETRY_MS);
  }

  open();
  return () => {
    ended = true;
    clearTimeout(timer);
    source?.close();
  };
}
