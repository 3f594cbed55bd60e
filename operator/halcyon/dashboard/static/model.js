// One model: what it is, why it has so many replicas, what it did in the last hour, and what it is made of.

import { follow, get, modelPath as pathOf } from "./api.js";
import { Chart, Cursor } from "./chart.js";
import { h, input, refill, say, sentence, svg } from "./dom.js";
import { badge } from "./fleet.js";
import { age, clock, duration, millis, NONE, number, percent, seconds } from "./format.js";

/** @typedef {import("../documents.js").Model} Model */
/** @typedef {import("../documents.js").Pod} Pod */

const KEPT = 360;
const FIELDS = /** @type {const} */ (["replicas", "ready", "desired", "gpu", "rate", "waiting", "latency", "p50", "p95", "p99", "batch", "refused", "lost", "failed", "errors"]);
/** @type {Record<import("../documents.js").PhaseName, string>} */
const WORDS = { pending: "waiting for a node", pulling: "pulling images", fetching: "fetching the model", starting: "starting the server", loading: "loading the model" };

/**
 * @param {HTMLElement} main
 * @param {string} namespace
 * @param {string} name
 * @param {import("../documents.js").Heard} heard
 * @returns {() => void} ends it
 */
export function modelPage(main, namespace, name, heard) {
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
      title: "Latency of clients",
      lines: [
        { field: "p50", name: "half within", style: "second" },
        { field: "p95", name: "95 %", style: "first" },
        { field: "p99", name: "99 %", style: "bad" },
        { field: "latencyTarget", name: "target", style: "limit" },
      ],
      format: millis,
      cursor,
    }),
    latency: new Chart({ title: "Latency inside Triton, mean", lines: [{ field: "latency", name: "queue and computing", style: "first" }], format: millis, cursor }),
    batch: new Chart({ title: "Rows per batch", lines: [{ field: "batch", name: "mean", style: "first" }, { field: "largest", name: "maxBatchSize", style: "limit" }], format: number, cursor }),
    gpu: new Chart({ title: "GPU utilisation", lines: [{ field: "gpu", name: "mean of the ready pods", style: "first" }, { field: "gpuTarget", name: "target", style: "limit" }], format: percent, least: 100, cursor }),
    errors: new Chart({
      title: "Requests that fail",
      lines: [
        { field: "refused", name: "refused by balancers", style: "second" },
        { field: "lost", name: "lost on the way", style: "first" },
        { field: "failed", name: "failed in Triton", style: "bad" },
      ],
      format: percent,
      least: 1,
      cursor,
    }),
  };
  const past = new Chart({ title: "Requests per second as the planner remembers them", lines: [{ field: "rate", name: "mean of five minutes", style: "first" }], format: number, cursor: new Cursor() });
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
  const overlay = h("pre", { tabindex: 0, "aria-label": "What Halcyon sets in the model's configuration" });
  const error = h("p", { role: "alert", class: "error", hidden: true });
  const pastRoom = h("details", {}, h("summary", {}, "Arrivals of the last days"), past.element);
  pastRoom.hidden = true;
  pastRoom.addEventListener("toggle", () => past.draw());
  const supposed = whatIf(path);
  const made = h("details", { ontoggle: () => readSpec() }, h("summary", {}, "Specification and configuration"), h("div", { class: "two" }, h("section", {}, h("h3", {}, "spec"), spec), h("section", {}, h("h3", {}, "Set in config.pbtxt"), overlay)));
  main.replaceChildren(
    h("nav", { "aria-label": "Way back" }, h("a", { href: "#/" }, "All models")),
    title,
    error,
    state,
    facts,
    h("section", { "aria-labelledby": "h-why" }, h("h2", { id: "h-why" }, "Why this many replicas"), reasons),
    h("section", { "aria-labelledby": "h-hour" }, h("h2", { id: "h-hour" }, "The last hour"), h("p", { class: "hint" }, "Point at a chart, or move along it with the arrow keys. Triangles are decisions. Drag over a stretch of time, or press + and −, to see it closer; Escape or a double click shows all of it. ", cursor.whole), h("div", { class: "charts" }, ...Object.values(charts).map((chart) => chart.element)), pastRoom, supposed.element),
    h("section", { "aria-labelledby": "h-conditions" }, h("h2", { id: "h-conditions" }, "Conditions"), conditions),
    h("section", { "aria-labelledby": "h-decisions" }, h("h2", { id: "h-decisions" }, "Decisions"), room("Decisions", table(["When", "From", "To", "Why"], decisions))),
    h("section", { "aria-labelledby": "h-events" }, h("h2", { id: "h-events" }, "Events"), room("Events", table(["When", "Reason", "What"], events, "Events"))),
    h("section", { "aria-labelledby": "h-pods" }, h("h2", { id: "h-pods" }, "Pods"), room("Servers", table(["Server", "State", "Revision", "Restarts", "Age"], pods, "Servers")), room("Balancers", table(["Balancer", "State", "", "Restarts", "Age"], balancers, "Balancers"))),
    h("section", { "aria-labelledby": "h-starts" }, h("h2", { id: "h-starts" }, "Cold starts"), room("Cold starts", table(["Server", "Took", "Phases"], starts))),
    made,
  );
  /** @type {import("../documents.js").History | null} */
  let series = null;
  /** @type {Model | null} */
  let document_ = null;
  /** @type {number | null} */
  let generation = null;

  get(`/api/models/${path}/history`)
    .then((/** @type {import("../documents.js").History} */ found) => {
      series = found;
      if (document_) append(document_.newest);
      if (found.past && found.past.rate.length > 1) {
        pastRoom.hidden = false;
        past.show(found.past);
      }
      drawCharts();
    })
    .catch(() => {}); // the stream tells why

  /** Adds the newest point, and what isn't known between it and the one before. @param {import("../documents.js").Series} newest */
  function append(newest) {
    if (!series || !newest.end || newest.end <= series.end) return;
    const missed = series.end ? Math.min(Math.round((newest.end - series.end) / series.step) - 1, KEPT) : 0;
    for (const field of FIELDS) {
      const values = series[field] || [];
      for (let index = 0; index < missed; index += 1) values.push(null);
      values.push(newest[field].at(-1) ?? null);
      series[field] = values.slice(-KEPT);
    }
    series.end = newest.end;
  }

  function drawCharts() {
    if (!series || !document_) return;
    const many = series.ready.length;
    const flat = (/** @type {number | null | undefined} */ value) => (value === null || value === undefined ? [] : Array(many).fill(value));
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
      const found = await get(`/api/models/${path}/spec`);
      say(spec, found.spec);
      say(overlay, found.overlay || "Nothing was rendered yet.");
    } catch (refused) {
      generation = null;
      say(spec, sentence(refused));
    }
  }

  /** @param {Model} found */
  function draw(found) {
    error.hidden = true;
    document_ = found;
    const { model, now, scaling } = found;
    Object.assign(limits, { min: model.min, max: model.max });
    append(found.newest);
    const ready = found.conditions.find((one) => one.type === "Ready");
    refill(state, badge(model.state), ` ${ready ? ready.message : "The operator has said nothing yet."}`);
    const bad = [now.refused ? `${number(now.refused)}/s refused` : "", now.lost ? `${number(now.lost)}/s lost` : "", now.failed ? `${number(now.failed)}/s failed in Triton` : ""].filter(Boolean).join(", ");
    refill(
      facts,
      ...fact("Replicas", `${model.ready ?? NONE} of ${model.replicas} ready${model.desired === null || model.desired === model.replicas ? "" : `, ${model.desired} wanted`}${model.max === null ? "" : `, ${model.min} to ${model.max} allowed`}`),
      ...fact("Requests/s", number(now.rate)),
      ...fact("Queue", `${number(now.waiting)}${model.queue_target === null ? "" : ` of ${number(model.queue_target)}`}`),
      ...fact("Latency", quantiles(found.newest) || millis(now.latency_ms)),
      ...fact("Rows per batch", number(now.batch)),
      ...fact("GPU", percent(now.gpu)),
      ...fact("GPUs", model.cost === null ? number(model.gpus) : `${model.gpus}: ${number(model.cost)} ${model.currency} an hour`),
      ...fact("Errors", bad || percent(now.errors === null ? null : now.errors * 100)),
      ...fact("URL", found.endpoints.http || NONE),
      ...fact("Serves", found.revision.current || NONE),
    );
    refill(reasons, ...why(found, scaling));
    refill(conditions, ...found.conditions.map(condition));
    refill(decisions, ...found.decisions.map((one) => row(clock(seconds(one.time)), one.before, one.after, one.why)), ...(found.decisions.length ? [] : [none(4, "No change of the count is remembered.")]));
    refill(events, ...found.events.map((one) => row(clock(one.at), h("span", { class: one.type === "Warning" ? "error" : null }, one.reason), one.message)), ...(found.events.length ? [] : [none(3, "Nothing has happened since this operator pod began to look.")]));
    refill(pods, ...found.pods.map((pod) => podRow(pod, found.revision)), ...(found.pods.length ? [] : [none(5, "There is no server pod.")]));
    refill(balancers, ...found.balancers.map((pod) => podRow(pod, {})), ...(found.balancers.length ? [] : [none(5, "There is no balancer pod.")]));
    const timed = found.pods.filter((pod) => pod.phases.length).sort((a, b) => (b.created ?? 0) - (a.created ?? 0)).slice(0, 12);
    const longest = Math.max(...timed.map(took), 1);
    refill(starts, ...timed.map((pod) => row(pod.name, `${duration(took(pod))}${pod.ready_at ? "" : " so far"}`, phases(pod, longest))), ...(timed.length ? [] : [none(3, "No start can be told of.")]));
    if (made.hasAttribute("open")) readSpec();
    drawCharts();
  }

  const end = follow(`/api/stream/models/${path}`, `/api/models/${path}`, "model", {
    document: draw,
    state: heard.state,
    refused: (refused) => {
      if (refused.status === 401) return heard.signIn(refused);
      error.hidden = false;
      say(error, refused.message);
      heard.state(false, "");
    },
  });
  return () => {
    end();
    for (const chart of [...Object.values(charts), past, supposed.chart]) chart.end();
  };
}

/** Other targets, and the counts that they would have made of the arrivals that the planner remembers. @param {string} path of the model */
function whatIf(path) {
  const chart = new Chart({
    title: "Replicas for these arrivals",
    lines: [
      { field: "as_is", name: "targets as they are", style: "first", stepped: true },
      { field: "then", name: "what if", style: "second", stepped: true },
    ],
    format: number,
    least: 1,
    cursor: new Cursor(),
  });
  /** @param {string} label @param {HTMLInputElement} one */
  const field = (label, one) => [h("label", { for: one.id }, label), one];
  const off = { autocomplete: "off", placeholder: "as it is" };
  const latency = input({ ...off, id: "if-latency", size: 8, pattern: "[0-9.]+(us|ms|s|m).*", title: "For example 200ms" });
  const least = input({ ...off, id: "if-min", type: "number", min: 0, max: 1000 });
  const most = input({ ...off, id: "if-max", type: "number", min: 1, max: 1000 });
  const hours = input({ autocomplete: "off", id: "if-hours", type: "number", min: 1, max: 360, value: 24, required: true });
  const fields = [...field("Latency", latency), ...field("Least replicas", least), ...field("Most replicas", most), ...field("Hours back", hours)];
  const said = h("div", { role: "status" });
  const form = h("form", { class: "what-if", onsubmit: (/** @type {Event} */ event) => (event.preventDefault(), ask()) }, ...fields, h("button", { type: "submit" }, "Reckon"));
  chart.element.hidden = true;

  async function ask() {
    const query = new URLSearchParams({ latency: latency.value.trim(), min: least.value, max: most.value, hours: hours.value });
    try {
      /** @type {import("../documents.js").WhatIf} */
      const found = await get(`/api/models/${path}/whatif?${query}`);
      chart.element.hidden = Boolean(found.why);
      if (found.why) return refill(said, h("p", {}, found.why));
      chart.show(found);
      refill(said, table(["", "Latency", "Replicas", "Replica hours", "Most", "Too few for"], h("tbody", {}, outcome("As it is", found.came_to.as_is), outcome("What if", found.came_to.then)), "What it comes to"), h("p", { class: "hint" }, `From ${number(found.known_hours)} h of arrivals in means of ${duration(found.step)}. Bursts within them, starts and backlogs are not in it: halcyon simulate has those.`));
    } catch (refused) {
      chart.element.hidden = true;
      refill(said, h("p", { class: "error" }, sentence(refused)));
    }
  }

  const element = h("details", {}, h("summary", {}, "What if the targets were others"), form, said, chart.element);
  return { element, chart };
}

/** @param {string} name @param {import("../documents.js").Outcome} found */
function outcome(name, found) {
  return row(name, millis(found.latency_ms), `${found.min} to ${found.max}`, number(found.replica_hours), found.most ?? NONE, found.short_hours ? `${number(found.short_hours)} h` : "never");
}

/** Of the clients answered last; empty where nobody was. @param {import("../documents.js").Series} newest */
function quantiles(newest) {
  const [half, most] = [newest.p50.at(-1), newest.p95.at(-1)];
  return half === null || half === undefined ? "" : `half within ${millis(half)}, 95 % within ${millis(most)}`;
}

/** @param {Model} found @param {import("../documents.js").Scaling} scaling */
function why(found, scaling) {
  if (!scaling.mode) return [h("p", {}, "Nobody scales it: spec.scaling is not set, and the count is spec.replicas.")];
  const parts = [h("p", { class: "why" }, scaling.why || "Nothing was decided yet.")];
  const how = `${scaling.policy}, written by ${scaling.actuator}${scaling.mode === "Active" ? "" : `; ${scaling.mode}`}${scaling.limitedBy ? `; limited by ${scaling.limitedBy.join(", ")}` : ""}${found.note ? `; ${found.note}` : ""}`;
  parts.push(h("p", { class: "hint" }, how));
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
  const known = pod.revision && revision.current?.endsWith(`-${pod.revision}`) ? "serves" : pod.revision && revision.target?.endsWith(`-${pod.revision}`) ? "coming" : "";
  const state = [h("span", { class: `pod ${pod.state}` }, pod.state), pod.reason ? ` ${pod.reason}` : "", pod.message ? h("span", { class: "reason" }, pod.message) : ""];
  return row(pod.name, h("div", {}, ...state), pod.revision ? `${pod.revision}${known ? `, ${known}` : ""}` : "", pod.restarts, pod.created ? age(new Date(pod.created * 1000).toISOString()) : NONE);
}

/** Seconds of its start, for a pod that has phases. @param {Pod} pod */
function took(pod) {
  return (pod.phases.at(-1)?.end ?? Date.now() / 1000) - pod.phases[0].begin;
}

/** Its phases one after the other, and the same in words. @param {Pod} pod @param {number} longest in seconds */
function phases(pod, longest) {
  const begin = pod.phases[0].begin;
  const told = pod.phases.map((one) => ({ ...one, took: (one.end ?? Date.now() / 1000) - one.begin }));
  const bars = told.map((one) => svg("rect", { class: `phase ${one.name}`, x: ((one.begin - begin) / longest) * 100, width: Math.max((one.took / longest) * 100, 0.4), y: 0, height: 10 }, svg("title", {}, `${WORDS[one.name]}: ${duration(one.took)}`)));
  return h("div", { class: "fall" }, svg("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" }, ...bars), h("span", { class: "hint" }, told.map((one) => `${WORDS[one.name]} ${duration(one.took)}`).join(", ")));
}

/** @param {string} term @param {string} text */
function fact(term, text) {
  return [h("div", {}, h("dt", {}, term), h("dd", {}, text))];
}

/** @param {string[]} heads @param {Node} body @param {string | null} label */
function table(heads, body, label = null) {
  return h("table", { "aria-label": label }, h("thead", {}, h("tr", {}, ...heads.map((head) => (head ? h("th", { scope: "col" }, head) : h("td"))))), body);
}

/** A wide table scrolls by itself; the page doesn't. @param {string} label @param {Node} child */
function room(label, child) {
  return h("div", { class: "wide-room", role: "region", tabindex: 0, "aria-label": `${label}, to be scrolled` }, child);
}

/** @param {string} first @param {...(Node | string | number)} cells */
function row(first, ...cells) {
  return h("tr", {}, h("th", { scope: "row" }, first), ...cells.map((cell) => h("td", {}, cell)));
}

/** @param {number} columns @param {string} text */
function none(columns, text) {
  return h("tr", {}, h("td", { colspan: columns, class: "empty" }, text));
}
