// Parts of a model's page that are read when they are opened: the specification, the revisions with their differences, and logs.

import { get } from "./api.js";
import { commandList, logCommand } from "./commands.js";
import { errorMessage, h, refill, setText } from "./dom.js";

/** @typedef {import("../documents.js").Pod} Pod */

/** Creates the section with the specification; `read` reads it again if the generation has changed. @param {string} path of the model */
export function specification(path) {
  const spec = h("pre", { role: "region", tabindex: 0, "aria-label": "Specification as YAML" });
  const overlay = h("pre", { role: "region", tabindex: 0, "aria-label": "Settings that Halcyon adds to the model's configuration" });
  /** @type {number | null} */
  let generation = null;
  /** @type {number | null} */
  let newest = null;
  const element = h("details", { ontoggle: () => read(newest) }, h("summary", {}, "Specification and configuration"), h("div", { class: "two" }, h("section", {}, h("h3", {}, "spec"), spec), h("section", {}, h("h3", {}, "Set in config.pbtxt"), overlay)));

  /** @param {number | null} current generation of the object */
  async function read(current) {
    newest = current;
    if (!element.hasAttribute("open") || current === null || generation === current) return;
    generation = current;
    try {
      const document = await get(`/api/models/${path}/spec`);
      setText(spec, document.spec);
      setText(overlay, document.overlay || "The configuration has not been rendered yet.");
    } catch (failure) {
      generation = null;
      setText(spec, errorMessage(failure));
    }
  }
  return { element, read };
}

/** Creates the section with the stored revisions. @param {string} path of the model */
export function revisions(path) {
  const list = h("div");
  const element = h("details", { ontoggle: () => read() }, h("summary", {}, "Revisions"), list);

  async function read() {
    if (!element.hasAttribute("open")) return;
    try {
      /** @type {{revisions: import("../documents.js").StoredRevision[]}} */
      const document = await get(`/api/models/${path}/revisions`);
      refill(list, ...(document.revisions.length ? document.revisions.map(revision) : [h("p", { class: "hint" }, "There are no stored revisions yet.")]));
    } catch (failure) {
      refill(list, h("p", { class: "error" }, errorMessage(failure)));
    }
  }
  return element;
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
