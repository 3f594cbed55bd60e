// Commands for a terminal, to copy. The dashboard changes nothing in the cluster itself.

import { byId, h, setText } from "./dom.js";

/** @typedef {import("../documents.js").Model} Model */
/** @typedef {import("../documents.js").Pod} Pod */
/** @typedef {{command: string, effect: string}} Command */

const GROUP = "serving.halcyon.dev";

/** Returns the commands that fit the state of a model, the most urgent first. @param {Model} page @returns {Command[]} */
export function commandsFor(page) {
  const { namespace, name } = page.model;
  const of = `${name} -n ${namespace}`;
  const commands = [];
  const { rollout } = page.model;
  if (rollout?.strategy === "Canary" && rollout.weight !== null && page.revision.target) {
    if (rollout.paused) commands.push({ command: `kubectl annotate --overwrite mdep ${of} ${GROUP}/promote-step=${page.revision.target}/${rollout.step}`, effect: "go to the canary's next step" });
    commands.push({ command: `kubectl annotate --overwrite mdep ${of} ${GROUP}/promote=${page.revision.target}`, effect: "promote the canary: all requests, without further steps" });
    commands.push({ command: `kubectl annotate --overwrite mdep ${of} ${GROUP}/abort=${page.revision.target}`, effect: "abort the canary: the previous revision serves all requests" });
  }
  if (page.problems.includes("limited") && page.scaling.limitedBy?.includes("max") && page.model.max !== null) commands.push({ command: `kubectl patch mdep ${of} --type merge -p '{"spec":{"scaling":{"maxReplicas":${page.model.max * 2}}}}'`, effect: `allow ${page.model.max * 2} replicas` });
  if (page.problems.includes("blind")) commands.push({ command: `kubectl logs -n ${namespace} -l ${balancers(name)} -c agent --tail=50`, effect: "why balancers don't report" });
  for (const pod of page.pods.filter((pod) => pod.log && ["failed", "unready"].includes(pod.state)).slice(0, 2)) commands.push({ command: logCommand(namespace, pod), effect: `the log of ${pod.name}` });
  commands.push({ command: `halcyon diagnose ${of}`, effect: "all checks of this model, with advice" });
  commands.push({ command: `halcyon explain ${of}`, effect: "the last scaling decision, step by step" });
  commands.push({ command: `kubectl describe mdep ${of}`, effect: "the object, with older events" });
  return commands;
}

/** Returns the command that counts the rejected requests of the last ten minutes by client. @param {Model} page @returns {Command} */
export function rejectedCommand(page) {
  const { namespace, name } = page.model;
  const filter = `fromjson? | select(.status == 429 or .status == 503 or .grpcStatus == 8 or .grpcStatus == 14) | .client // "without a key"`;
  return { command: `kubectl logs -n ${namespace} -l ${balancers(name)} -c haproxy --since=10m --tail=-1 | jq -rR '${filter}' | sort | uniq -c | sort -rn`, effect: "rejected requests of the last ten minutes, by client" };
}

/** @param {string} namespace @param {Pod} pod the pod must have a log */
export function logCommand(namespace, pod) {
  return `kubectl logs -n ${namespace} ${pod.name} -c ${pod.log?.container} --tail=100${pod.log?.previous ? " --previous" : ""}`;
}

/** @param {string} name */
function balancers(name) {
  return `${GROUP}/model-deployment=${name},app.kubernetes.io/component=balancer`;
}

/** @param {Command[]} commands */
export function commandList(commands) {
  return h("ul", { class: "commands" }, ...commands.map((entry) => h("li", {}, h("button", { type: "button", "data-copy": entry.command, "aria-label": `Copy the command: ${entry.effect}` }, "Copy"), h("span", {}, h("code", {}, entry.command), h("span", { class: "hint" }, ` ${entry.effect}`)))));
}

/** Copies the command of a button that was clicked. Add it as a listener once, to an element around the buttons. @param {Event} event */
export async function copyClicked(event) {
  const button = event.target instanceof Element ? event.target.closest("button[data-copy]") : null;
  if (!(button instanceof HTMLElement)) return;
  let [message, done] = ["Copied to the clipboard.", "Copied"];
  try {
    await navigator.clipboard.writeText(button.dataset.copy || "");
  } catch {
    const code = button.parentElement?.querySelector("code");
    if (code) getSelection()?.selectAllChildren(code);
    [message, done] = ["The browser gives no access to the clipboard; the command is selected.", "Selected"];
  }
  setText(byId("announcement"), message);
  setText(button, done);
  setTimeout(() => setText(button, "Copy"), 1500);
}
