// One model: its state, the reason for its replicas, its last hour, and its pods and configuration.

import { follow, get, modelPath as pathOf } from "./api.js";
import { Chart, Cursor } from "./chart.js";
import { errorMessage, h, input, refill, setText, svg } from "./dom.js";
import { badge } from "./fleet.js";
import { age, clock, duration, millis, NONE, number, percent, quantile, seconds } from "./format.js";

/** @typedef {import("../documents.js").Model} Model */
/** @typedef {import("../documents.js").Pod} Pod */

const MAX_POINTS = 360;
const FIELDS = /** @type {const} */ (["replicas", "ready", "desired", "gpu", "rate", "waiting", "in_triton", "p50", "p95", "p99", "batch", "rejected", "lost", "failed", "errors"]);
/** @type {Record<import("../documents.js").PhaseName, string>} */
const PHASE_NAMES = { pending: "waiting for a node", pulling: "pulling images", fetching: "fetching the model", starting: "starting the server", loading: "loading the model" };

/**
 * @param {HTMLElement} main
 * @param {string} namespace
 * @param {string} name
 * @param {import("../documents.js").PageListener} listener
 * @returns {() => void} closes the page
 */
export function modelPage(main, namespace, name, listener) {
  document.title = `${name} · Halcyon`;
  const path = pathOf(namespace, name);
  const cursor = new Cursor();
  /** @type {{min: number | null, max: number | null}} */
  const limits = { min: null, max: null };
  const charts = {
    replicas: new Chart({
      title: "Replicas",
      lines: [
        { field: "ready", name: "ready", style: "first area", stepped: true },
        { field: "desired", name: "desired", style: "second", stepped: true },
        { field: "max", name: "max", style: "limit", stepped: true },
        { field: "min", name: "min", style: "limit", stepped: true },
      ],
      format: number,
      least: 1,
      cursor,
    }),
    rate: new Chart({ title: "Requests per second", lines: [{ field: "rate", name: "arrivals", style: "first" }], format: number, cursor }),
    queue: new Chart({ title: "Queue", lines: [{ field: "waiting", name: "waiting requests", style: "first" }, { field: "target", name: "target", style: "limit" }], format: number, cursor }),
    quantiles: new Chart({
      title: "Client latency",
      lines: [
        { field: "p50", name: "p50", style: "third" },
        { field: "p95", name: "p95", style: "first" },
        { field: "p99", name: "p99", style: "second" },
        { field: "latencyTarget", name: "target", style: "limit" },
      ],
      format: millis,
      cursor,
    }),
    inTriton: new Chart({ title: "Time in Triton, mean", lines: [{ field: "in_triton", name: "queue and computation", style: "first" }], format: millis, cursor }),
    batch: new Chart({ title: "Batch size", lines: [{ field: "batch", name: "mean", style: "first" }, { field: "largest", name: "maxBatchSize", style: "limit" }], format: number, cursor }),
    gpu: new Chart({ title: "GPU utilisation", lines: [{ field: "gpu", name: "mean of the ready pods", style: "first" }, { field: "gpuTarget", name: "target", style: "limit" }], format: percent, least: 100, cursor }),
    errors: new Chart({
      title: "Errors",
      lines: [
        { field: "rejected", name: "rejected by balancers", style: "second" },
        { field: "lost", name: "lost", style: "first" },
        { field: "failed", name: "failed in Triton", style: "third" },
      ],
      format: percent,
      least: 1,
      cursor,
    }),
  };
  const past = new Chart({ title: "Requests per second remembered by the planner", lines: [{ field: "rate", name: "five-minute mean", style: "first" }], format: number, cursor: new Cursor() });
  const title = h("h1", {}, name, h("span", { class: "space" }, namespace));
  const state = h("p", { class: "headline" });
  const facts = h("dl", { class: "facts" });
  const conditions = h("ul", { class: "conditions" });
  const decisions = h("tbody");
  const events = h("tbody");
  const reasons = h("div");
  const pods = h("tbody");
  const balancers = h("tbody");
  const starts = h("tbody");
  const spec = h("pre", { tabindex: 0, "aria-label": "Specification as YAML" });
  const overlay = h("pre", { tabindex: 0, "aria-label": "Settings that Halcyon adds to the model's configuration" });
  const error = h("p", { role: "alert", class: "error", hidden: true });
  const pastSection = h("details", {}, h("summary", {}, "Arrivals in the last days"), past.element);
  pastSection.hidden = true;
  pastSection.addEventListener("toggle", () => past.draw());
  const calculator = whatIf(path);
  const specSection = h("details", { ontoggle: () => readSpec() }, h("summary", {}, "Specification and configuration"), h("div", { class: "two" }, h("section", {}, h("h3", {}, "spec"), spec), h("section", {}, h("h3", {}, "Set in config.pbtxt"), overlay)));
  main.replaceChildren(
    h("nav", { "aria-label": "Back" }, h("a", { href: "#/" }, "All models")),
    title,
    error,
    state,
    facts,
    h("section", { "aria-labelledby": "h-why" }, h("h2", { id: "h-why" }, "Reason for the replicas"), reasons),
    h("section", { "aria-labelledby": "h-hour" }, h("h2", { id: "h-hour" }, "The last hour"), h("p", { class: "hint" }, "Point at a chart, or move along it with the arrow keys. Triangles are decisions. To zoom in, drag over a time range or press + and −. To zoom out, press Escape or double-click. ", cursor.zoomOut), h("div", { class: "charts" }, ...Object.values(charts).map((chart) => chart.element)), pastSection, calculator.element),
    h("section", { "aria-labelledby": "h-conditions" }, h("h2", { id: "h-conditions" }, "Conditions"), conditions),
    h("section", { "aria-labelledby": "h-decisions" }, h("h2", { id: "h-decisions" }, "Decisions"), scroller("Decisions", table(["Time", "From", "To", "Reason"], decisions))),
    h("section", { "aria-labelledby": "h-events" }, h("h2", { id: "h-events" }, "Events"), scroller("Events", table(["Time", "Reason", "Message"], events, "Events"))),
    h("section", { "aria-labelledby": "h-pods" }, h("h2", { id: "h-pods" }, "Pods"), scroller("Servers", table(["Server", "State", "Revision", "Restarts", "Age"], pods, "Servers")), scroller("Balancers", table(["Balancer", "State", "", "Restarts", "Age"], balancers, "Balancers"))),
    h("section", { "aria-labelledby": "h-starts" }, h("h2", { id: "h-starts" }, "Cold starts"), scroller("Cold starts", table(["Server", "Duration", "Phases"], starts))),
    specSection,
  );
  /** @type {import("../documents.js").History | null} */
  let series = null;
  /** @type {Model | null} */
  let document_ = null;
  /** @type {number | null} */
  let generation = null;

  get(`/api/models/${path}/history`)
    .then((/** @type {import("../documents.js").History} */ history) => {
      series = history;
      if (document_) append(document_.newest);
      if (history.past && history.past.rate.length > 1) {
        pastSection.hidden = false;
        past.show(history.past);
      }
      drawCharts();
    })
    .catch(() => {}); // the stream reports the reason

  /** Adds the newest point, and unknown points for the gap before it. @param {import("../documents.js").Series} newest */
  function append(newest) {
    if (!series || !newest.end || newest.end <= series.end) return;
    const missed = series.end ? Math.min(Math.round((newest.end - series.end) / series.step) - 1, MAX_POINTS) : 0;
    for (const field of FIELDS) {
      const values = series[field] || [];
      for (let index = 0; index < missed; index += 1) values.push(null);
      values.push(newest[field].at(-1) ?? null);
      series[field] = values.slice(-MAX_POINTS);
    }
    series.end = newest.end;
  }

  function drawCharts() {
    if (!series || !document_) return;
    const points = series.ready.length;
    const flat = (/** @type {number | null | undefined} */ value) => (value === null || value === undefined ? [] : Array(points).fill(value));
    const signal = Object.fromEntries((document_.scaling.signals || []).map((one) => [one.name, one.target === undefined ? null : Number(one.target)]));
    const depth = signal.queueDepth;
    const shown = {
      ...series,
      min: flat(limits.min),
      max: flat(limits.max),
      target: depth ? series.ready.map((ready) => (ready === null ? null : Math.max(ready, 1) * depth)) : [],
      gpuTarget: flat(signal.gpuUtilization),
      latencyTarget: flat(document_.latency_target_ms),
      largest: flat(document_.largest_batch),
    };
    const marks = document_.decisions.map((one) => ({ at: seconds(one.time) ?? 0, text: `${clock(seconds(one.time))}: ${one.before} to ${one.after}: ${one.why}` }));
    for (const [key, chart] of Object.entries(charts)) chart.show(shown, key === "replicas" ? marks : []);
  }

  async function readSpec() {
    if (!document_ || generation === document_.generation) return;
    generation = document_.generation;
    try {
      const document = await get(`/api/models/${path}/spec`);
      setText(spec, document.spec);
      setText(overlay, document.overlay || "The configuration has not been rendered yet.");
    } catch (failure) {
      generation = null;
      setText(spec, errorMessage(failure));
    }
  }

  /** @param {Model} page */
  function draw(page) {
    error.hidden = true;
    document_ = page;
    const { model, now, scaling } = page;
    Object.assign(limits, { min: model.min, max: model.max });
    append(page.newest);
    const ready = page.conditions.find((one) => one.type === "Ready");
    refill(state, badge(model.state), ` ${ready ? ready.message : "The operator has not set a status yet."}`);
    const errors = [now.rejected ? `${number(now.rejected)}/s rejected` : "", now.lost ? `${number(now.lost)}/s lost` : "", now.failed ? `${number(now.failed)}/s failed in Triton` : ""].filter(Boolean).join(", ");
    refill(
      facts,
      ...fact("Replicas", `${model.ready ?? NONE} of ${model.replicas} ready${model.desired === null || model.desired === model.replicas ? "" : `, ${model.desired} desired`}${model.max === null ? "" : `, ${model.min} to ${model.max} allowed`}`),
      ...fact("Requests/s", number(now.rate)),
      ...fact("Queue", `${number(now.waiting)}${model.queue_target === null ? "" : ` of ${number(model.queue_target)}`}`),
      ...fact("Latency", quantiles(page.newest) || NONE),
      ...fact("Time in Triton", millis(now.latency_ms)),
      ...fact("Batch size", number(now.batch)),
      ...fact("GPU", percent(now.gpu)),
      ...fact("GPUs", model.cost === null ? number(model.gpus) : `${model.gpus}: ${number(model.cost)} ${model.currency} per hour`),
      ...fact("Errors", errors || percent(now.errors === null ? null : now.errors * 100)),
      ...fact("URL", page.address.url || NONE),
      ...fact("Revision", page.revision.current || NONE),
    );
    refill(reasons, ...why(page, scaling));
    refill(conditions, ...page.conditions.map(condition));
    refill(decisions, ...page.decisions.map((one) => row(clock(seconds(one.time)), one.before, one.after, one.why)), ...(page.decisions.length ? [] : [none(4, "No decisions are recorded.")]));
    refill(events, ...page.events.map((one) => row(clock(one.at), h("span", { class: one.type === "Warning" ? "error" : null }, one.reason), one.message)), ...(page.events.length ? [] : [none(3, "There have been no events since this operator pod started.")]));
    refill(pods, ...page.pods.map((pod) => podRow(pod, page.revision)), ...(page.pods.length ? [] : [none(5, "There are no server pods.")]));
    refill(balancers, ...page.balancers.map((pod) => podRow(pod, {})), ...(page.balancers.length ? [] : [none(5, "There are no balancer pods.")]));
    const started = page.pods.filter((pod) => pod.phases.length).sort((a, b) => (b.created ?? 0) - (a.created ?? 0)).slice(0, 12);
    const longest = Math.max(...started.map(startSeconds), 1);
    refill(starts, ...started.map((pod) => row(pod.name, `${duration(startSeconds(pod))}${pod.ready_at ? "" : " so far"}`, phases(pod, longest))), ...(started.length ? [] : [none(3, "No start times are known.")]));
    if (specSection.hasAttribute("open")) readSpec();
    drawCharts();
  }

  const end = follow(`/api/stream/models/${path}`, `/api/models/${path}`, "model", {
    document: draw,
    state: listener.state,
    failed: (failure) => {
      if (failure.status === 401) return listener.signIn(failure);
      error.hidden = false;
      setText(error, failure.message);
      listener.state(false, "");
    },
  });
  return () => {
    end();
    for (const chart of [...Object.values(charts), past, calculator.chart]) chart.end();
  };
}

/** Calculates the replicas that other targets would require for the arrivals that the planner remembers. @param {string} path of the model */
function whatIf(path) {
  const chart = new Chart({
    title: "Replicas for these arrivals",
    lines: [
      { field: "current", name: "current targets", style: "first", stepped: true },
      { field: "alternative", name: "what if", style: "second", stepped: true },
    ],
    format: number,
    least: 1,
    cursor: new Cursor(),
  });
  /** @param {string} label @param {HTMLInputElement} one */
  const field = (label, one) => [h("label", { for: one.id }, label), one];
  const unchanged = { autocomplete: "off", placeholder: "current" };
  const latency = input({ ...unchanged, id: "if-latency", size: 8, pattern: "[0-9.]+(us|ms|s|m).*", title: "For example 200ms" });
  const minimum = input({ ...unchanged, id: "if-min", type: "number", min: 0, max: 1000 });
  const maximum = input({ ...unchanged, id: "if-max", type: "number", min: 1, max: 1000 });
  const hours = input({ autocomplete: "off", id: "if-hours", type: "number", min: 1, max: 360, value: 24, required: true });
  const fields = [...field("Latency", latency), ...field("Minimum replicas", minimum), ...field("Maximum replicas", maximum), ...field("Past hours", hours)];
  const result = h("div", { role: "status" });
  const form = h("form", { class: "what-if", onsubmit: (/** @type {Event} */ event) => (event.preventDefault(), calculate()) }, ...fields, h("button", { type: "submit" }, "Calculate"));
  chart.element.hidden = true;

  async function calculate() {
    const query = new URLSearchParams({ latency: latency.value.trim(), min: minimum.value, max: maximum.value, hours: hours.value });
    try {
      /** @type {import("../documents.js").WhatIf} */
      const document = await get(`/api/models/${path}/whatif?${query}`);
      chart.element.hidden = Boolean(document.why);
      if (document.why) return refill(result, h("p", {}, document.why));
      chart.show(document);
      refill(result, table(["", "Latency", "Replicas", "Replica hours", "Peak", "Too few for"], h("tbody", {}, outcome("Current", document.totals.current), outcome("What if", document.totals.alternative)), "Result"), h("p", { class: "hint" }, `Calculated from ${number(document.known_hours)} h of arrivals, as means of ${duration(document.step)}. Bursts within them, starts and backlogs are not included; halcyon simulate has those.`));
    } catch (failure) {
      chart.element.hidden = true;
      refill(result, h("p", { class: "error" }, errorMessage(failure)));
    }
  }

  const element = h("details", {}, h("summary", {}, "What if the targets were different"), form, result, chart.element);
  return { element, chart };
}

/** @param {string} name @param {import("../documents.js").Outcome} total */
function outcome(name, total) {
  return row(name, millis(total.latency_ms), `${total.min} to ${total.max}`, number(total.replica_hours), total.peak ?? NONE, total.short_hours ? `${number(total.short_hours)} h` : "never");
}

/** Formats the newest client latency; empty if there was no response. @param {import("../documents.js").Series} newest */
function quantiles(newest) {
  const [p50, p95] = [newest.p50.at(-1), newest.p95.at(-1)];
  return p50 === null || p50 === undefined ? "" : `p50 ${quantile(p50)}, p95 ${quantile(p95)}`;
}

/** @param {Model} page @param {import("../documents.js").Scaling} scaling */
function why(page, scaling) {
  if (!scaling.mode) return [h("p", {}, "The model is not autoscaled: spec.scaling is not set, so spec.replicas applies.")];
  const parts = [h("p", { class: "why" }, scaling.why || "No decision has been made yet.")];
  const details = `${scaling.policy}, written by ${scaling.actuator}${scaling.mode === "Active" ? "" : `; ${scaling.mode}`}${scaling.limitedBy ? `; limited by ${scaling.limitedBy.join(", ")}` : ""}${page.note ? `; ${page.note}` : ""}`;
  parts.push(h("p", { class: "hint" }, details));
  const capacity = scaling.capacity;
  if (capacity) parts.push(h("p", { class: "hint" }, `One replica: ${capacity.requestsPerSecond ? `${capacity.requestsPerSecond} requests/s` : "unknown"} (${capacity.source}): ${capacity.why}`));
  if (scaling.parts) parts.push(h("ul", {}, ...scaling.parts.map((one) => h("li", {}, h("b", {}, `${one.name}: ${one.replicas}`), ` ${one.why}`))));
  const missing = (scaling.signals || []).filter((one) => one.missing);
  if (missing.length) parts.push(h("ul", {}, ...missing.map((one) => h("li", { class: "error" }, `${one.name} is missing: ${one.missing}`))));
  return parts;
}

/** @param {import("../documents.js").Condition} one */
function condition(one) {
  return h("li", {}, h("span", { class: `status ${one.status}` }, one.status), h("b", {}, `${one.type}: ${one.reason}`), h("span", {}, one.message), h("span", { class: "hint" }, `since ${clock(seconds(one.lastTransitionTime))}`));
}

/** @param {Pod} pod @param {Model["revision"]} revision */
function podRow(pod, revision) {
  const role = pod.revision && revision.current?.endsWith(`-${pod.revision}`) ? "current" : pod.revision && revision.target?.endsWith(`-${pod.revision}`) ? "target" : "";
  const state = [h("span", { class: `pod ${pod.state}` }, pod.state), pod.reason ? ` ${pod.reason}` : "", pod.message ? h("span", { class: "reason" }, pod.message) : ""];
  return row(pod.name, h("div", {}, ...state), pod.revision ? `${pod.revision}${role ? `, ${role}` : ""}` : "", pod.restarts, pod.created ? age(new Date(pod.created * 1000).toISOString()) : NONE);
}

/** Returns the duration of a pod's start so far; the pod must have phases. @param {Pod} pod */
function startSeconds(pod) {
  return (pod.phases.at(-1)?.end ?? Date.now() / 1000) - pod.phases[0].begin;
}

/** Draws the phases of a pod's start one after the other, and lists them as text. @param {Pod} pod @param {number} longest in seconds */
function phases(pod, longest) {
  const begin = pod.phases[0].begin;
  const timed = pod.phases.map((one) => ({ ...one, seconds: (one.end ?? Date.now() / 1000) - one.begin }));
  const bars = timed.map((one) => svg("rect", { class: `phase ${one.name}`, x: ((one.begin - begin) / longest) * 100, width: Math.max((one.seconds / longest) * 100, 0.4), y: 0, height: 10 }, svg("title", {}, `${PHASE_NAMES[one.name]}: ${duration(one.seconds)}`)));
  return h("div", { class: "fall" }, svg("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" }, ...bars), h("span", { class: "hint" }, timed.map((one) => `${PHASE_NAMES[one.name]} ${duration(one.seconds)}`).join(", ")));
}

/** @param {string} term @param {string} text */
function fact(term, text) {
  return [h("div", {}, h("dt", {}, term), h("dd", {}, text))];
}

/** @param {string[]} heads @param {Node} body @param {string | null} label */
function table(heads, body, label = null) {
  return h("table", { "aria-label": label }, h("thead", {}, h("tr", {}, ...heads.map((head) => (head ? h("th", { scope: "col" }, head) : h("td"))))), body);
}

/** Wraps a wide table, so that it scrolls by itself and the page doesn't. @param {string} label @param {Node} child */
function scroller(label, child) {
  return h("div", { class: "wide-scroller", role: "region", tabindex: 0, "aria-label": `${label}, scrollable` }, child);
}

/** @param {string} first @param {...(Node | string | number)} cells */
function row(first, ...cells) {
  return h("tr", {}, h("th", { scope: "row" }, first), ...cells.map((cell) => h("td", {}, cell)));
}

/** @param {number} columns @param {string} text */
function none(columns, text) {
  return h("tr", {}, h("td", { colspan: columns, class: "empty" }, text));
}
