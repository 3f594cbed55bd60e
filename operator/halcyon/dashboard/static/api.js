// Requests to the operator: documents, and streams of documents that reconnect by themselves.

import { errorMessage } from "./dom.js";
import { setClock } from "./format.js";

export class RequestError extends Error {
  /** @param {number} status HTTP status; 0 if there was no response @param {string} message */
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** Message if an authenticating proxy, which answers with a redirect or with its own 401, doesn't know the user any more. */
const SESSION_ENDED = "Your session has ended. Reload the page to sign in again.";
/** Options of a request that an authenticating proxy must not redirect to its sign-in page, which scripts can't read. @type {RequestInit} */
const NO_REDIRECT = { redirect: "manual", headers: { Accept: "application/json" } };

/**
 * Requests a document.
 * @param {string} path
 * @param {RequestInit} [options]
 * @returns {Promise<any>}
 * @throws {RequestError} with the operator's error message
 */
export async function get(path, options = NO_REDIRECT) {
  let response;
  try {
    response = await fetch(path, { credentials: "same-origin", ...options });
  } catch {
    throw new RequestError(0, "The operator can't be reached.");
  }
  setClock(response.headers.get("Date"));
  if (response.type === "opaqueredirect") throw new RequestError(401, SESSION_ENDED);
  const body = await response.json().catch(() => ({}));
  if (!response.ok) throw new RequestError(response.status, body.error || (response.status === 401 ? SESSION_ENDED : `${response.status} ${response.statusText}`));
  return body;
}

/** @param {string} namespace @param {string} name */
export function modelPath(namespace, name) {
  return `${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;
}

const RETRY_MS = 5000;
/** Time without any event after which a new stream counts as buffered by a proxy. The operator sends the first event at once. */
const FIRST_MS = 10_000;
/** Time without an event after which a stream counts as dead. The operator sends at least a beat every 15 s. */
const SILENT_MS = 40_000;
/** Time after which a stream is tried again if a proxy has buffered the last one. */
const BUFFERED_MS = 60_000;
/** Time after which a hidden tab closes its stream: browsers open only six HTTP/1.1 connections to a server, for all tabs together. */
const HIDDEN_MS = 60_000;
/** Time of `performance.now` from which streams may be opened. */
let streamsFrom = 0;

/**
 * Follows a stream of documents. Browsers reconnect a broken stream, but not one that was rejected, and they don't detect one that is
 * silent: this function then polls the document, which gives the reason, and opens the stream again later.
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
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let hiding;
  let isPaused = false;
  /** Number of the current stream or request. Responses of earlier ones are ignored: the tab was hidden since, or the stream has ended. */
  let attempt = 0;

  function open() {
    if (performance.now() < streamsFrom) return poll();
    attempt += 1;
    source?.close();
    const stream = (source = new EventSource(path));
    let isSilent = true;
    /** Closes the stream if no event arrives in time. @param {number} ms */
    const watch = (ms) => {
      clearTimeout(timer);
      timer = setTimeout(() => (stream.close(), poll(isSilent)), ms);
    };
    const arrived = () => {
      isSilent = false;
      watch(SILENT_MS);
      listener.state(true, "");
    };
    watch(FIRST_MS);
    stream.addEventListener("beat", arrived);
    stream.addEventListener(event, (message) => {
      arrived();
      listener.document(JSON.parse(message.data));
    });
    stream.addEventListener("over", (message) => {
      stream.close();
      listener.state(false, JSON.parse(message.data).error);
      poll();
    });
    stream.onerror = () => {
      if (stream.readyState === EventSource.CLOSED) poll();
      else listener.state(false, "Connection lost; reconnecting.");
    };
  }

  /** Requests the document itself: shows it until the stream is open again, or reports the error. @param {boolean} isBuffered whether a proxy seems to buffer streams */
  async function poll(isBuffered = false) {
    clearTimeout(timer);
    const own = ++attempt;
    try {
      const answer = await get(plainPath);
      if (own !== attempt) return;
      if (isBuffered) streamsFrom = performance.now() + BUFFERED_MS;
      listener.document(answer);
      listener.state(false, "Updates every 5 s: no live stream is available now.");
    } catch (error) {
      if (own !== attempt) return;
      if (error instanceof RequestError && [401, 403, 404].includes(error.status)) {
        listener.failed(error);
        if (error.status === 401) return;
      } else listener.state(false, errorMessage(error));
    }
    timer = setTimeout(open, RETRY_MS);
  }

  /** Closes the stream of a tab that stays hidden, and opens it again once the tab is visible. */
  function pauseIfHidden() {
    clearTimeout(hiding);
    if (document.hidden) hiding = setTimeout(pause, HIDDEN_MS);
    else if (isPaused) {
      isPaused = false;
      open();
    }
  }

  function pause() {
    isPaused = true;
    attempt += 1;
    clearTimeout(timer);
    source?.close();
    listener.state(false, "Paused while the tab is hidden.");
  }

  open();
  pauseIfHidden();
  document.addEventListener("visibilitychange", pauseIfHidden);
  return () => {
    attempt += 1;
    document.removeEventListener("visibilitychange", pauseIfHidden);
    clearTimeout(hiding);
    clearTimeout(timer);
    source?.close();
  };
}
