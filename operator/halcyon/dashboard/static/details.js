// Parts of a model's page that are read when they are opened: the specification, the revisions with their differences, and logs.

import { get } from "./api.js";
import { commandList, logCommand } from "./commands.js";
import { errorMessage, h, refill, setText } from "./dom.js";

/** @typedef {import("../documents.js").Pod} Pod */

/** Creates the section with the specification; `read` reads it again if the object's version has changed. @param {string} path of the model */
export function specification(path) {
  const spec = h("pre", { role: "region", tabindex: 0, "aria-label": "Specification as YAML" });
  const overlay = h("pre", { role: "region", tabindex: 0, "aria-label": "Settings that Halcyon adds to the model's configuration" });
  /** @type {string | null} */
  let shown = null;
  /** @type {string | null} */
  let newest = null;
  const element = h("details", { ontoggle: () => read(newest) }, h("summary", {}, "Specification and configuration"), h("div", { class: "two" }, h("section", {}, h("h3", {}, "spec"), spec), h("section", {}, h("h3", {}, "Set in config.pbtxt"), overlay)));

  /** @param {string | null} current text that changes with the specification; null if nothing is known yet */
  async function read(current) {
    newest = current;
    if (!element.hasAttribute("open") || current === null || shown === current) return;
    shown = current;
    try {
      const document = await get(`/api/models/${path}/spec`);
      setText(spec, document.spec);
      setText(overlay, document.overlay || "The configuration has not been rendered yet.");
    } catch (failure) {
      shown = null;
      setText(spec, errorMessage(failure));
    }
  }
  return { element, read };
}

/** Creates the section with the stored revisions; `read` reads them again if their roles have changed. @param {string} path of the model */
export function revisions(path) {
  const list = h("div");
  const element = h("details", { ontoggle: () => read(newest, true) }, h("summary", {}, "Revisions"), list);
  /** Roles of the revisions that are shown, and the newest ones. */
  let [shown, newest] = ["", ""];

  /** @param {string} roles names of the current and the target revision @param {boolean} isOpened whether the section was just opened */
  async function read(roles, isOpened = false) {
    newest = roles;
    if (!element.hasAttribute("open") || (roles === shown && !isOpened)) return;
    shown = roles;
    try {
      /** @type {{revisions: import("../documents.js").StoredRevision[]}} */
      const document = await get(`/api/models/${path}/revisions`);
      refill(list, ...(document.revisions.length ? document.revisions.map(revision) : [h("p", { class: "hint" }, "There are no stored revisions yet.")]));
    } catch (failure) {
      shown = "";
      refill(list, h("p", { class: "error" }, errorMessage(failure)));
    }
  }
  return { element, read };
}

/** @param {import("../documents.js").StoredRevision} stored */
function revision(stored) {
  const lines = stored.diff.map(([kind, text]) => h("span", { class: kind === "+" ? "add" : kind === "-" ? "drop" : null }, `${kind} ${text}\n`));
  const title = h("h3", {}, stored.name, h("span", { class: "space" }, [` number ${stored.number}`, stored.role].filter(Boolean).join(", ")));
  if (stored.first) return h("section", {}, title, h("p", { class: "hint" }, "The oldest stored revision."));
  if (!lines.length) return h("section", {}, title, h("p", { class: "hint" }, "The pods are the same; the model's files have changed."));
  return h("section", {}, title, h("pre", { class: "diff", role: "region", tabindex: 0, "aria-label": `Changes of ${stored.name}` }, ...lines));
}

/** Creates the area that shows the last log lines of a pod. @param {string} path of the model @param {string} namespace */
export function logView(path, namespace) {
  const element = h("div", { role: "status" });

  /** @param {Pod} pod the pod must have a log */
  async function show(pod) {
    const command = commandList([{ command: logCommand(namespace, pod), effect: "the same with your own rights" }]);
    try {
      const document = await get(`/api/models/${path}/logs?pod=${encodeURIComponent(pod.name)}`);
      const lines = document.lines ? h("pre", { role: "region", tabindex: 0, "aria-label": `Last log lines of ${pod.name}` }, document.lines) : h("p", { class: "hint" }, document.why || "The log is empty.");
      refill(element, h("h3", {}, `Last log lines of ${pod.name}, container ${pod.log?.container}`), lines, command);
    } catch (failure) {
      refill(element, h("p", { class: "error" }, errorMessage(failure)), command);
    }
  }
  return { element, show };
}
