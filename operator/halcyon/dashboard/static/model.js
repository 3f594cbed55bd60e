// One model, in the order in which the person on call reads: what is wrong, rollout, conditions, pods; then decisions and charts.

import { adviceList } from "./advice.js";
import { follow, get, modelPath as pathOf } from "./api.js";
import { batchList } from "./batches.js";
import { Chart, Cursor } from "./chart.js";
import { commandList, commandsFor, copyClicked, rejectedCommand } from "./commands.js";
import { logView, revisions, specification } from "./details.js";
import { breakable, h, refill, setText, setTitle, svg } from "./dom.js";
import { badge, whyNoGpu } from "./fleet.js";
import { append, FIELDS, fill } from "./series.js";
import { age, clock, count, duration, known, millis, missing, money, NONE, now as secondsNow, number, percent, quantile, rate, seconds, integer } from "./format.js";
import { none, row, scroller, table } from "./tables.js";
import { progress } from "./totals.js";
import { whatIf } from "./whatif.js";

/** @typedef {import("../documents.js").Model} Model */
/** @typedef {import("../documents.js").Pod} Pod */
/** @typedef {import("../documents.js").Series} Series */

const REFRESH_MS = 60_000;
/** Least time between two requests for the points of the last hour. */
const REREAD_MS = 10_000;
/** Time ranges of the charts: hours and name. @type {[number, string][]} */
const RANGES = [
  [1, "1 h"],
  [6, "6 h"],
  [24, "24 h"],
  [168, "7 d"],
  [720, "30 d"],
];
/** @type {Record<import("../documents.js").PhaseName, string>} */
const PHASE_NAMES = { pending: "waiting for a node", pulling: "pulling images", fetching: "fetching the model", starting: "starting the server", loading: "loading the model" };
/** Returns the runbook of a problem; empty if it has none. @param {import("../documents.js").Problem} problem @param {Model} page */
function runbookOf(problem, page) {
  const { now } = page;
  const isAccepted = page.conditions.every((condition) => condition.type !== "Accepted" || condition.status !== "False");
  const reason = page.conditions.find((condition) => condition.type === "Stalled")?.reason ?? "";
  const isNotLoaded = /^(LoadFailed|Model(ConfigInvalid|SourceNotFound|DownloadFailed))$/.test(reason);
  const isFailing = (now.failed ?? 0) >= (now.rejected ?? 0) + (now.lost ?? 0);
  return {
    unready: "HalcyonModelNotReady",
    errors: isFailing ? "HalcyonErrorRatioHigh" : "HalcyonRequestsRejected",
    slow: "HalcyonLatencyObjectiveMissed",
    stalled: isAccepted ? (isNotLoaded ? "HalcyonModelLoadFailed" : "HalcyonRolloutBlocked") : "HalcyonSpecRejected",
    blind: "HalcyonMetricMissing",
    limited: page.scaling.limitedBy?.includes("max") ? "HalcyonModelAtMax" : "HalcyonQueueLong",
  }[problem];
}
/** Limits that keep the replicas below the number that the load requires, as in `model_row.py`. */
const CAPS = new Set(["max", "quota", "budget"]);
/** Condition types that are good when they are True. */
const NORMALLY_TRUE = new Set(["Ready", "Accepted", "ModelLoaded", "ServersReady", "BalancerReady", "RoutesAccepted", "ScalingActive"]);

/**
 * @param {HTMLElement} main
 * @param {string} namespace
 * @param {string} name
 * @param {URLSearchParams} params of the page's URL
 * @param {import("../documents.js").PageListener} listener
 * @returns {() => void} closes the page
 */
export function modelPage(main, namespace, name, params, listener) {
  setTitle(name);
  const path = pathOf(namespace, name);
  const cursor = new Cursor();
  /** @type {{min: number | null, max: number | null}} */
  const limits = { min: null, max: null };
  const charts = {
    rate: new Chart({ title: "Requests per second", lines: [{ field: "rate", name: "arrivals", style: "first" }], format: rate, cursor }),
    quantiles: new Chart({
      title: "Client latency",
      lines: [
        { field: "p99", name: "p99", style: "first" },
        { field: "p95", name: "p95", style: "second" },
        { field: "p50", name: "p50", style: "third" },
        { field: "latencyTarget", name: "objective for p99", style: "limit" },
      ],
      format: millis,
      cursor,
    }),
    errors: new Chart({
      title: "Errors, percent of the requests",
      lines: [
        { field: "rejected", name: "rejected by balancers", style: "second" },
        { field: "lost", name: "lost", style: "first" },
        { field: "failed", name: "failed in Triton", style: "third" },
      ],
      format: percent,
      least: 1,
      cursor,
    }),
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
      integers: true,
      cursor,
    }),
    queue: new Chart({ title: "Queue, requests", lines: [{ field: "waiting", name: "waiting", style: "first" }, { field: "target", name: "target", style: "limit" }], format: count, least: 1, cursor }),
    gpu: new Chart({ title: "GPU utilisation", lines: [{ field: "gpu", name: "mean of the ready pods", style: "first" }, { field: "gpuTarget", name: "target", style: "limit" }], format: percent, least: 100, cursor }),
    inTriton: new Chart({ title: "Time in Triton, mean", lines: [{ field: "in_triton", name: "queue and computation", style: "first" }], format: millis, cursor }),
    batch: new Chart({ title: "Batch size, rows", lines: [{ field: "batch", name: "mean", style: "first" }, { field: "largest", name: "maxBatchSize", style: "limit" }], format: number, cursor }),
  };
  const past = new Chart({ title: "Requests per second remembered by the planner", lines: [{ field: "rate", name: "five-minute mean", style: "first" }], format: rate, cursor: new Cursor() });
  const links = h("span", { class: "links" });
  const loading = h("p", { class: "hint" }, "Loading…");
  /** Everything that needs the model's document. */
  const content = h("div", { class: "content", hidden: true });
  const state = h("p", { class: "headline" });
  const facts = h("dl", { class: "facts" });
  const wrong = h("section", { class: "panel warn", "aria-labelledby": "h-wrong", hidden: true });
  const rollout = h("section", { class: "panel", "aria-labelledby": "h-rollout", hidden: true });
  const conditions = h("ul", { class: "conditions" });
  const decisions = h("tbody");
  const events = h("tbody");
  const reasons = h("div");
  const advice = h("section", { class: "panel", "aria-labelledby": "h-advice" });
  const pods = h("tbody");
  const balancers = h("tbody");
  const starts = h("tbody");
  const commands = h("div");
  const error = h("p", { role: "alert", class: "error", hidden: true });
  const rangeNote = h("p", { class: "hint", role: "status" });
  const rangeButtons = RANGES.map(([hours, title]) => h("button", { type: "button", class: "chip", onclick: () => choose(hours) }, title));
  const pastSection = h("details", {}, h("summary", {}, "Arrivals in the last days"), past.element);
  pastSection.hidden = true;
  pastSection.addEventListener("toggle", () => past.draw());
  const calculator = whatIf(path);
  const batches = batchList(path);
  const spec = specification(path);
  const stored = revisions(path);
  const log = logView(path, namespace);
  main.replaceChildren(
    h("nav", { "aria-label": "Path", class: "crumbs" }, h("a", { href: "#/", title: "Press u to go back to all models" }, "All models"), h("a", { href: `#/?namespace=${encodeURIComponent(namespace)}` }, namespace), h("a", { href: `#/${path}/measured` }, "Measured"), links),
    h("h1", {}, name, h("span", { class: "space" }, namespace)),
    error,
    loading,
    content,
  );
  content.append(
    state,
    wrong,
    facts,
    rollout,
    h(
      "div",
      { class: "two" },
      h("section", { class: "panel", "aria-labelledby": "h-conditions" }, h("h2", { id: "h-conditions" }, "Conditions"), conditions),
      h("section", { class: "panel", "aria-labelledby": "h-pods" }, h("h2", { id: "h-pods" }, "Pods"), scroller("Servers", table(["Server", "State", "Revision", "Restarts", "Age"], pods, "Servers"), "pods"), log.element, scroller("Balancers", table(["Balancer", "State", "", "Restarts", "Age"], balancers, "Balancers"), "pods")),
    ),
    h("details", { class: "panel" }, h("summary", {}, "Commands to copy"), commands),
    h("section", { "aria-labelledby": "h-why" }, h("h2", { id: "h-why" }, "Reason for the replicas"), reasons),
    advice,
    batches.element,
    h("section", { "aria-labelledby": "h-charts" }, h("div", { class: "bar" }, h("h2", { id: "h-charts" }, "Charts"), h("span", { class: "range", role: "group", "aria-label": "Time range" }, ...rangeButtons), cursor.zoomOut), rangeNote, h("div", { class: "charts" }, ...Object.values(charts).map((chart) => chart.element)), h("p", { class: "hint" }, "Point at a chart, or move along it with the arrow keys. Triangles are decisions. To zoom in, drag over a time range or press + and −. To zoom out, press Escape or double-click."), pastSection, calculator.element),
    h("section", { "aria-labelledby": "h-decisions" }, h("h2", { id: "h-decisions" }, "Decisions"), scroller("Decisions", table(["Time", "From", "To", "Reason"], decisions, "Decisions"))),
    h("section", { "aria-labelledby": "h-events" }, h("h2", { id: "h-events" }, "Events"), scroller("Events", table(["Time", "Reason", "Message"], events, "Events"))),
    h("section", { "aria-labelledby": "h-starts" }, h("h2", { id: "h-starts" }, "Cold starts"), scroller("Cold starts", table(["Server", "Duration", "Phases"], starts))),
    stored.element,
    spec.element,
  );
  main.addEventListener("click", copyClicked);
  pods.addEventListener("click", (event) => {
    const button = event.target instanceof Element ? event.target.closest("button[data-pod]") : null;
    const pod = document_?.pods.find((pod) => pod.name === button?.getAttribute("data-pod"));
    if (pod) log.show(pod);
  });
  /** Points of the last hour. @type {import("../documents.js").History | null} */
  let series = null;
  /** Time of the last request for them, and whether points are missing that the operator may have. */
  let readAt = 0;
  let isIncomplete = false;
  /** Points of a longer range; null: the last hour is shown. @type {Series | null} */
  let longer = null;
  /** @type {Model | null} */
  let document_ = null;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  let hours = RANGES.some(([length]) => String(length) === params.get("range")) ? Number(params.get("range")) : 1;

  /** Rows of the measurements of the served model, which explain why its load rose. @type {{ at: number, cells: (string | number)[] }[]} */
  let loads = [];
  get(`/api/models/${path}/measured`)
    .then((/** @type {import("../documents.js").BenchResult[]} */ results) => {
      loads = results.filter((result) => result.place?.kind === "live").map((result) => ({ at: seconds(result.made_at) ?? 0, cells: ["", "", `halcyon bench --live has loaded the model for ${duration(result.run.warm_up_s + result.run.measured_s)}${result.place?.ended ? `: ${result.place.ended}` : ""}`] }));
      if (document_) draw(document_);
    })
    .catch(() => {}); // the page Measured reports the reason
  /** Reads the points of the last hour, which also fill the gaps of a page whose stream was interrupted. */
  function readHistory() {
    readAt = performance.now();
    get(`/api/models/${path}/history`)
      .then((/** @type {import("../documents.js").History} */ history) => {
        if (series) fill(series, history);
        else series = history;
        if (document_) append(series, document_.newest);
        if (history.past && history.past.rate.length > 1) {
          pastSection.hidden = false;
          past.show(history.past);
        }
        drawCharts();
      })
      .catch(() => {}); // the stream reports the reason; the next document causes another request
  }
  readHistory();

  /** Shows another time range. @param {number} value in hours */
  function choose(value) {
    hours = value;
    history.replaceState(null, "", `#/${path}${hours === 1 ? "" : `?range=${hours}`}`);
    cursor.show(null);
    readRange();
  }

  /** Reads the points of the chosen range now, and then every minute. */
  async function readRange() {
    clearTimeout(timer);
    rangeButtons.forEach((button, index) => button.setAttribute("aria-pressed", String(RANGES[index][0] === hours)));
    if (hours === 1) {
      longer = null;
      setText(rangeNote, "");
      return drawCharts();
    }
    const requested = hours;
    const answer = await get(`/api/models/${path}/history?hours=${hours}`).catch((failure) => ({ why: failure.message }));
    if (requested !== hours) return;
    const isKnown = !answer.why;
    longer = isKnown ? answer : { end: secondsNow(), step: 10, ...Object.fromEntries(FIELDS.map((field) => [field, []])) };
    const remembered = !isKnown && series?.past ? lastHours(series.past, hours) : null;
    if (remembered && longer) Object.assign(longer, remembered);
    setText(rangeNote, isKnown ? `From the site's Prometheus, a point every ${duration(answer.step)}.` : `${answer.why}${remembered ? " The requests per second are those that the planner remembers, up to 15 days." : ""}`);
    drawCharts();
    timer = setTimeout(readRange, REFRESH_MS);
  }

  function drawCharts() {
    const points = longer ?? series;
    if (!points || !document_) return;
    const length = Math.max(points.ready.length, points.rate.length);
    const flat = (/** @type {number | null | undefined} */ value) => (value === null || value === undefined ? [] : Array(length).fill(value));
    // Limits of earlier days are not recorded, so a longer range shows none but the objectives.
    const recent = (/** @type {number | null | undefined} */ value) => (longer ? [] : flat(value));
    const signal = Object.fromEntries((document_.scaling.signals || []).map((signal) => [signal.name, signal.target === undefined ? null : Number(signal.target)]));
    const depth = signal.queueDepth;
    const shown = {
      ...points,
      min: recent(limits.min),
      max: recent(limits.max),
      target: depth ? points.ready.map((ready) => (ready === null ? null : Math.max(ready, 1) * depth)) : [],
      gpuTarget: flat(signal.gpuUtilization),
      latencyTarget: flat(document_.latency_target_ms),
      largest: recent(document_.largest_batch),
    };
    const marks = document_.decisions.map((decision) => ({ at: seconds(decision.time) ?? 0, text: `${clock(seconds(decision.time))}: ${decision.before} to ${decision.after}: ${decision.why}` }));
    for (const [key, chart] of Object.entries(charts)) chart.show(shown, key === "replicas" ? marks : []);
  }

  /** @param {Model} page */
  function draw(page) {
    error.hidden = loading.hidden = true;
    content.hidden = false;
    const isFirst = document_ === null;
    document_ = page;
    const { model, scaling } = page;
    Object.assign(limits, { min: model.min, max: model.max });
    isIncomplete = (series ? append(series, page.newest) : true) || isIncomplete;
    if (isIncomplete && performance.now() - readAt >= REREAD_MS) {
      isIncomplete = false;
      readHistory();
    }
    const ready = page.conditions.find((condition) => condition.type === "Ready");
    refill(state, badge(model.state), ` ${ready ? ready.message : "The operator has not set a status yet."}`);
    refill(links, ...siteLinks(listener.links(), listener.cluster(), namespace, name));
    refill(facts, ...factList(page));
    wrong.hidden = !page.problems.length;
    refill(wrong, ...problemList(page, listener.links().runbooks));
    rollout.hidden = !model.rollout;
    refill(rollout, ...(model.rollout ? [h("h2", { id: "h-rollout" }, "Rollout"), h("div", { class: "progress" }, ...progress(model.rollout)), h("p", {}, model.rollout.message), commandList(commandsFor(page).filter((entry) => entry.command.includes("annotate")))] : []));
    refill(reasons, ...why(page, scaling));
    advice.hidden = !page.advice.length;
    refill(advice, ...adviceList(page));
    refill(conditions, ...page.conditions.map(condition));
    refill(commands, commandList(commandsFor(page)));
    const decided = page.decisions.map((decision) => ({ at: seconds(decision.time) ?? 0, cells: [decision.before, decision.after, decision.why] }));
    const since = Math.min(...decided.map((entry) => entry.at));
    const listed = [...decided, ...loads.filter((entry) => entry.at >= since)].sort((a, b) => b.at - a.at);
    refill(decisions, ...listed.map((entry) => row(clock(entry.at), ...entry.cells)), ...(listed.length ? [] : [none(4, "No decisions are recorded.")]));
    refill(events, ...page.events.map((event) => row(clock(event.at), h("span", { class: event.type === "Warning" ? "error" : null }, event.reason), event.message)), ...(page.events.length ? [] : [none(3, "There have been no events since this operator pod started.")]));
    refill(pods, ...page.pods.map((pod) => podRow(pod, page.revision)), ...(page.pods.length ? [] : [none(5, "There are no server pods.")]));
    refill(balancers, ...page.balancers.map((pod) => podRow(pod, {})), ...(page.balancers.length ? [] : [none(5, "There are no balancer pods.")]));
    const started = page.pods.filter((pod) => pod.phases.length).sort((a, b) => (b.created ?? 0) - (a.created ?? 0)).slice(0, 12);
    const longest = Math.max(...started.map(startSeconds), 1);
    refill(starts, ...started.map((pod) => row(pod.name, `${duration(startSeconds(pod))}${pod.ready_at ? "" : " so far"}`, phases(pod, longest))), ...(started.length ? [] : [none(3, "No start times are known.")]));
    spec.read(`${model.created} ${page.generation}`);
    stored.read(`${page.revision.current} ${page.revision.target}`);
    if (isFirst) readRange();
    else if (!longer) drawCharts();
  }

  const end = follow(`/api/stream/models/${path}`, `/api/models/${path}`, "model", {
    document: draw,
    state: listener.state,
    failed: (failure) => {
      if (failure.status === 401) return listener.signIn(failure);
      error.hidden = false;
      loading.hidden = content.hidden = true; // the values of a deleted model are no longer true
      setText(error, failure.message);
      listener.state(false, "");
    },
  });
  return () => {
    end();
    clearTimeout(timer);
    batches.end();
    main.removeEventListener("click", copyClicked);
    for (const chart of [...Object.values(charts), past, calculator.chart]) chart.end();
  };
}

/** Returns the last hours of the arrivals that the planner remembers. @param {{end: number, step: number, rate: import("../documents.js").Values}} past @param {number} hours */
function lastHours(past, hours) {
  return { end: past.end, step: past.step, rate: past.rate.slice(-Math.round((hours * 3600) / past.step)) };
}

/** Returns links to the site's other tools. @param {import("../documents.js").Links} links @param {string} cluster empty if it has no name @param {string} namespace @param {string} name */
function siteLinks(links, cluster, namespace, name) {
  const anchors = [];
  const parameters = new URLSearchParams({ "var-namespace": namespace, "var-model": name, ...(cluster ? { "var-cluster": cluster } : {}) });
  const matchers = `namespace="${namespace}",model_deployment="${name}"${cluster ? `,cluster="${cluster}"` : ""}`;
  if (links.grafana) anchors.push(h("a", { href: `${links.grafana}/d/halcyon-model?${parameters}`, rel: "noreferrer" }, "Grafana"));
  if (links.alerts) anchors.push(h("a", { href: `${links.alerts}/#/alerts?filter=${encodeURIComponent(`{${matchers}}`)}`, rel: "noreferrer" }, "Alerts"));
  if (links.runbooks) anchors.push(h("a", { href: links.runbooks, rel: "noreferrer" }, "Runbooks"));
  return anchors;
}

/** @param {Model} page @param {string} runbooks base URL; empty if there is none */
function problemList(page, runbooks) {
  if (!page.problems.length) return [];
  const { model, now } = page;
  const p99 = page.newest.p99.at(-1) ?? null;
  /** @param {string} type */
  const messageOf = (type) => page.conditions.find((condition) => condition.type === type)?.message || model.reason;
  const missed = (page.scaling.signals || []).filter((signal) => signal.missing).map((signal) => `${signal.name}: ${signal.missing}`);
  /** @type {Record<import("../documents.js").Problem, string>} */
  const texts = {
    unready: `Requests are not answered. ${messageOf("Ready")}`,
    errors: `${percent(now.errors === null ? null : now.errors * 100)} of the requests fail: ${failures(page) || "see the chart of errors"}.`,
    slow: `The p99 of the client latency is ${quantile(p99)}; the objective is ${millis(page.latency_target_ms)}.`,
    stalled: `A change of the spec is needed. ${messageOf("Stalled")}`,
    blind: `A signal is missing, so the replicas can't follow it. ${missed.join("; ") || messageOf("ScalingActive")}`,
    limited: `A limit prevents more replicas: ${(page.scaling.limitedBy || []).filter((limit) => CAPS.has(limit)).join(", ")}.`,
  };
  const items = page.problems.map((problem) => {
    const runbook = runbooks && runbookOf(problem, page);
    return h("li", {}, texts[problem], ...(runbook ? [" ", h("a", { href: `${runbooks}/${runbook}.md`, rel: "noreferrer" }, "Runbook")] : []));
  });
  const rejected = now.rejected ? [page.access_log === "None" ? h("p", { class: "hint" }, "Whose requests are rejected is not recorded: set spec.traffic.accessLog to Errors.") : commandList([rejectedCommand(page)])] : [];
  return [h("h2", { id: "h-wrong" }, "What is wrong"), h("ul", { class: "problems" }, ...items), ...rejected];
}

/** Formats the failing requests by reason; empty if there are none. @param {Model} page */
function failures(page) {
  const { now } = page;
  return [now.rejected ? `${rate(now.rejected)}/s rejected` : "", now.lost ? `${rate(now.lost)}/s lost` : "", now.failed ? `${rate(now.failed)}/s failed in Triton` : ""].filter(Boolean).join(", ");
}

/** @param {Model} page */
function factList(page) {
  const { model, now, newest, problems } = page;
  const [p50, p95, p99] = [newest.p50.at(-1) ?? null, newest.p95.at(-1) ?? null, newest.p99.at(-1) ?? null];
  const noReport = "No balancer or server of the model has reported in the last 15 s.";
  const idle = now.rate === 0 ? "There are no requests." : noReport;
  return [
    fact("Replicas", `${model.ready ?? NONE} of ${model.replicas} ready`, `${model.desired === null || model.desired === model.replicas ? "" : `${model.desired} desired, `}${model.max === null ? "not scaled" : `${model.min} to ${model.max} allowed`}`, problems.includes("unready")),
    fact("Requests/s", known(now.rate, rate(now.rate), noReport)),
    fact("Errors", known(now.errors, percent(now.errors === null ? null : now.errors * 100), idle), failures(page), problems.includes("errors")),
    fact("Latency", p99 === null ? missing(now.rate === 0 ? "There are no requests." : "No balancer has measured a response in the last 10 s.") : `p99 ${quantile(p99)}`, p99 === null ? "" : `p50 ${quantile(p50)}, p95 ${quantile(p95)}${page.latency_target_ms === null ? "" : `; objective ${millis(page.latency_target_ms)}`}`, problems.includes("slow")),
    fact("Queue", known(now.waiting, count(now.waiting), noReport), model.queue_target === null ? "" : `of ${integer(model.queue_target)}`),
    fact("GPU", known(now.gpu, percent(now.gpu), whyNoGpu(model))),
    fact("GPUs", integer(model.gpus), model.cost === null ? "" : `· ${money(model.cost)} ${model.currency} per hour`),
    fact("Batch size", known(now.batch, number(now.batch), idle)),
    fact("Time in Triton", known(now.latency_ms, millis(now.latency_ms), idle)),
    fact("URL", page.address.url ? breakable(page.address.url) : missing("The model has no address yet.")),
    fact("Revision", page.revision.current || missing("No revision serves yet."), page.revision.target && page.revision.target !== page.revision.current ? `target ${page.revision.target}` : ""),
  ];
}

/** @param {import("../documents.js").Capacity} capacity */
function replica(capacity) {
  const parts = [];
  if (capacity.source) {
    const sustained = capacity.sustainedRequestsPerSecond ? `, ${capacity.sustainedRequestsPerSecond} within the objective` : "";
    const rate = capacity.requestsPerSecond ? `${capacity.requestsPerSecond} requests/s${sustained}` : "unknown";
    parts.push(h("p", { class: "hint" }, `One replica: ${rate} (${capacity.source}): ${capacity.why}`));
  }
  const lines = (capacity.lines || []).map((line) => `${line.constantMilliseconds} ms + ${line.perRowMilliseconds} ms for each row, up to ${line.maxBatchSize} rows, with ${line.instances} instance${line.instances === 1 ? "" : "s"}`);
  if (lines.length) parts.push(h("p", { class: "hint" }, `A batch takes ${lines.join("; ")}${capacity.gpuProduct ? ` on ${capacity.gpuProduct}` : ""}${capacity.observedAt ? `, ${clock(seconds(capacity.observedAt))}` : ""}`));
  if (capacity.ignored) parts.push(h("p", { class: "hint" }, capacity.ignored));
  return parts;
}

/** @param {Model} page @param {import("../documents.js").Scaling} scaling */
function why(page, scaling) {
  if (!scaling.mode) return [h("p", {}, "The model is not autoscaled: spec.scaling is not set, so spec.replicas applies.")];
  const parts = [h("p", { class: "why" }, scaling.why || "No decision has been made yet.")];
  const details = `${scaling.policy}, written by ${scaling.actuator}${scaling.mode === "Active" ? "" : `; ${scaling.mode}`}${scaling.limitedBy ? `; limited by ${scaling.limitedBy.join(", ")}` : ""}${page.note ? `; ${page.note}` : ""}`;
  parts.push(h("p", { class: "hint" }, details));
  parts.push(...replica(page.capacity));
  if (scaling.parts) parts.push(h("ul", {}, ...scaling.parts.map((part) => h("li", {}, h("b", {}, `${part.name}: ${part.replicas}`), ` ${part.why}`))));
  const absent = (scaling.signals || []).filter((signal) => signal.missing);
  if (absent.length) parts.push(h("ul", {}, ...absent.map((signal) => h("li", { class: "error" }, `${signal.name} is missing: ${signal.missing}`))));
  return parts;
}

/** @param {import("../documents.js").Condition} condition */
function condition(condition) {
  const isBad = NORMALLY_TRUE.has(condition.type) ? condition.status === "False" : condition.type === "Stalled" && condition.status === "True";
  return h("li", {}, h("span", { class: `status ${isBad ? "error" : NORMALLY_TRUE.has(condition.type) ? condition.status : ""}` }, condition.status), h("b", {}, `${condition.type}: ${condition.reason}`), h("span", {}, condition.message), h("span", { class: "hint" }, `since ${clock(seconds(condition.lastTransitionTime))}`));
}

/** @param {Pod} pod @param {Model["revision"]} revision */
function podRow(pod, revision) {
  const role = pod.revision && revision.current?.endsWith(`-${pod.revision}`) ? "current" : pod.revision && revision.target?.endsWith(`-${pod.revision}`) ? "target" : "";
  const log = pod.log && pod.revision ? [" ", h("button", { type: "button", "data-pod": pod.name, "aria-label": `Last log lines of ${pod.name}` }, "Log")] : [];
  const state = [h("span", { class: `pod ${pod.state}` }, pod.state), pod.reason ? ` ${pod.reason}` : "", ...log, pod.message ? h("span", { class: "reason" }, pod.message) : ""];
  return row(pod.name, h("div", {}, ...state), pod.revision ? `${pod.revision}${role ? `, ${role}` : ""}` : "", pod.restarts, pod.created ? age(new Date(pod.created * 1000).toISOString()) : NONE);
}

/** Returns the duration of a pod's start so far; the pod must have phases. @param {Pod} pod */
function startSeconds(pod) {
  return (pod.phases.at(-1)?.end ?? secondsNow()) - pod.phases[0].begin;
}

/** Draws the phases of a pod's start one after the other, and lists them as text. @param {Pod} pod @param {number} longest in seconds */
function phases(pod, longest) {
  const begin = pod.phases[0].begin;
  const timed = pod.phases.map((phase) => ({ ...phase, seconds: (phase.end ?? secondsNow()) - phase.begin }));
  const bars = timed.map((phase) => svg("rect", { class: `phase ${phase.name}`, x: ((phase.begin - begin) / longest) * 100, width: Math.max((phase.seconds / longest) * 100, 0.4), y: 0, height: 10 }, svg("title", {}, `${PHASE_NAMES[phase.name]}: ${duration(phase.seconds)}`)));
  return h("div", { class: "fall" }, svg("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" }, ...bars), h("span", { class: "hint" }, timed.map((phase) => `${PHASE_NAMES[phase.name]} ${duration(phase.seconds)}`).join(", ")));
}

/** @param {string} term @param {Node | string} value @param {string} more @param {boolean} isBad */
function fact(term, value, more = "", isBad = false) {
  const isWide = ["URL", "Revision", "Latency", "Replicas"].includes(term);
  return h("div", { class: [isBad && "bad", isWide && "wider-fact"].filter(Boolean).join(" ") || null }, h("dt", {}, term), h("dd", {}, value, more ? h("small", {}, ` ${more}`) : ""));
}
