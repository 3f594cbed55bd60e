// Page of the fleet: a table that contains only the visible rows. The operator filters, sorts and divides it into pages.

import { follow, modelPath, RequestError } from "./api.js";
import { Rows } from "./rows.js";
import { sparkline } from "./spark.js";
import { byId, h, input, refill, setText, setTitle } from "./dom.js";
import { age, count, known, millis, money, NONE, now as secondsNow, percent, plural, quantile, rate, integer } from "./format.js";
import { rollouts, totals } from "./totals.js";
import { viewList } from "./views.js";

/** @typedef {import("../documents.js").Fleet} Fleet */
/** @typedef {import("../documents.js").ShownRow} ShownRow */
/** @typedef {import("../documents.js").State} State */

/** Least and largest number of rows that are requested at once; between them, two screens. */
const LEAST_ROWS = 40;
const MOST_ROWS = 100;
/** @type {Record<State, string>} */
const STATE_NAMES = {
  stalled: "Stalled",
  unready: "Not ready",
  progressing: "In progress",
  unknown: "Unknown",
  limited: "Limited",
  zero: "At zero",
  ready: "Ready",
};

/** @type {Record<import("../documents.js").Problem, string>} */
const PROBLEM_NAMES = {
  unready: "Not ready",
  errors: "Errors",
  slow: "objective missed",
  stalled: "Stalled",
  blind: "Signal missing",
  limited: "Limited",
};
const FILLING = "The operator is still filling its caches.";
const NO_REPORT = "No balancer or server of the model has reported in the last 15 s.";

/** Returns why a value of a row is unknown. @param {ShownRow} row @param {string} measured what was not measured */
function whyUnknown(row, measured) {
  if (row.rate === null) return NO_REPORT;
  return row.rate === 0 ? `There are no requests, so there is no ${measured}.` : `No balancer of the model has measured the ${measured} in the last 10 s.`;
}

/** Returns why the GPU utilisation of a model is unknown. @param {import("../documents.js").Row} row */
export function whyNoGpu(row) {
  if (!row.ready) return "No pod is ready, so no GPU is in use.";
  return row.gpus ? "No ready pod reports the utilisation of its GPU." : "The pods have no GPU.";
}

/** @type {{key: string, title: string, sort: string | null, class: string, wrong?: (row: ShownRow) => boolean, cell: (row: ShownRow) => (Node | string)[]}[]} */
const COLUMNS = [
  { key: "model", title: "Model", sort: "name", class: "name", cell: (row) => [h("a", { href: `#/${modelPath(row.namespace, row.name)}`, title: row.name }, row.name), h("span", { class: "space" }, row.namespace)] },
  { key: "state", title: "State", sort: "urgency", class: "", cell: (row) => [badge(row.state), h("span", { class: "reason", title: problemText(row) || null }, problemText(row))] },
  { key: "replicas", title: "Replicas", sort: "replicas", class: "n", cell: (row) => [h("span", { title: row.why || "" }, `${row.ready ?? NONE}/${row.replicas}`), row.max === null ? "" : h("span", { class: "small" }, `${row.min}–${row.max}`)] },
  { key: "rate", title: "Requests/s", sort: "rate", class: "n mid", cell: (row) => [known(row.rate, rate(row.rate), NO_REPORT)] },
  { key: "spark", title: "10 min", sort: null, class: "wide", cell: (row) => [sparkline(row.sparks, `Requests per second of ${row.name} over ten minutes`)] },
  { key: "errors", title: "Errors", sort: "errors", class: "n wide", wrong: (row) => row.problems.includes("errors"), cell: (row) => [known(row.errors, percent(row.errors), whyUnknown(row, "share of errors"))] },
  { key: "latency", title: "p99", sort: "latency", class: "n mid", wrong: (row) => row.problems.includes("slow"), cell: (row) => [known(row.latency, quantile(row.latency), whyUnknown(row, "latency")), row.latency_target === null ? "" : h("span", { class: "small" }, `of ${millis(row.latency_target)}`)] },
  { key: "queue", title: "Queue", sort: "queue", class: "n", cell: (row) => [known(row.queue, count(row.queue), NO_REPORT), row.queue_target === null ? "" : h("span", { class: "small" }, `of ${integer(row.queue_target)}`)] },
  { key: "gpu", title: "GPU", sort: "gpu", class: "n wide", cell: (row) => [known(row.gpu, percent(row.gpu), whyNoGpu(row))] },
  { key: "gpus", title: "GPUs", sort: "gpus", class: "n wider", cell: (row) => [integer(row.gpus)] },
  { key: "cost", title: "Cost/h", sort: "cost", class: "n wider", cell: (row) => [known(row.cost, money(row.cost), "The site has set no price of the GPU, or the model has none.")] },
  { key: "age", title: "Age", sort: "age", class: "n wider", cell: (row) => [age(row.created)] },
];

/** Returns the problems of a model in a few words; without problems, the reason for its state. @param {ShownRow} row */
function problemText(row) {
  const parts = row.problems.filter((problem) => PROBLEM_NAMES[problem] !== STATE_NAMES[row.state]).map((problem) => PROBLEM_NAMES[problem]);
  if (row.reason !== STATE_NAMES[row.state] && row.reason !== "Ready") parts.unshift(row.reason);
  return parts.join(", ");
}

/** @param {State} state */
export function badge(state) {
  return h("span", { class: `badge ${state}` }, STATE_NAMES[state] || state);
}

/**
 * @param {HTMLElement} main
 * @param {URLSearchParams} params of the page's URL
 * @param {import("../documents.js").PageListener} listener
 * @returns {() => void} closes the page
 */
export function fleetPage(main, params, listener) {
  setTitle("Models");
  const get = (/** @type {string} */ key, absent = "") => params.get(key) || absent;
  const query = { text: get("text"), namespace: get("namespace"), state: get("state"), problem: get("problem"), sort: get("sort", "urgency"), order: get("order", "ascending"), offset: 0 };
  let end = () => {};
  /** @type {Fleet | null} */
  let fleet = null;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  let rowPx = 42;
  let frame = 0;
  /** What the parts above the table show. */
  let summary = "";

  const filter = input({ id: "filter", type: "search", maxlength: 200, value: query.text, placeholder: "namespace, name, reason, image", oninput: () => debounce(() => change({ text: filter.value })) });
  const namespace = /** @type {HTMLSelectElement} */ (h("select", { id: "namespace", onchange: () => change({ namespace: namespace.value }) }));
  const states = h("div", { class: "states", role: "group", "aria-label": "Show only models in this state or with this problem" });
  const matches = h("p", { class: "count" });
  const tiles = h("dl", { class: "totals" });
  const rolling = h("ul", { class: "rollouts" });
  const panel = h("section", { class: "panel fleet-rollouts", "aria-labelledby": "h-rollouts", hidden: true }, h("h2", { id: "h-rollouts" }, "Rollouts"), rolling);
  const heads = COLUMNS.map((column) =>
    h(
      "th",
      { scope: "col", class: column.class },
      column.sort ? h("button", { type: "button", onclick: () => column.sort && sort(column.sort) }, column.title, h("span", { class: "arrow", "aria-hidden": "true" })) : column.title,
    ),
  );
  const body = h("tbody");
  const rows = new Rows(body, line, makeRoom);
  const table = h("table", { "aria-label": "Models" }, h("thead", {}, h("tr", { "aria-rowindex": 1 }, ...heads)), body);
  const pad = h("div", {}, table);
  const scroller = h("div", { class: "scroller", role: "region", tabindex: 0, "aria-label": "Table of models, scrollable", onscroll: () => loadVisibleRows() }, pad);
  main.replaceChildren(
    h("h1", { class: "visually-hidden" }, "Models"),
    tiles,
    h("div", { class: "bar" }, h("label", { for: "namespace" }, "Namespace"), namespace, h("label", { for: "filter", class: "visually-hidden" }, "Filter"), filter, h("kbd", { title: "Press / to go to the filter" }, "/"), matches, viewList(sharedQuery, (saved) => (location.hash = `#/${saved ? `?${saved}` : ""}`))),
    states,
    panel,
    scroller,
  );
  table.addEventListener("keydown", (event) => {
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    const links = /** @type {HTMLElement[]} */ ([...body.querySelectorAll("th.name a")]);
    const next = links[links.findIndex((link) => link === document.activeElement) + (event.key === "ArrowDown" ? 1 : -1)];
    if (!next) return;
    event.preventDefault();
    next.focus();
    next.scrollIntoView({ block: "nearest" });
  });

  /** @param {() => void} action */
  function debounce(action) {
    clearTimeout(timer);
    timer = setTimeout(action, 150);
  }

  /** @param {string} key */
  function sort(key) {
    const same = query.sort === key;
    change({ sort: key, order: same && query.order === "ascending" ? "descending" : same ? "ascending" : ["name", "urgency"].includes(key) ? "ascending" : "descending" });
  }

  /** Returns the part of the query that the page's URL has. */
  function sharedQuery() {
    const { offset, ...shown } = query;
    return new URLSearchParams(Object.entries(shown).filter(([key, value]) => value && value !== { sort: "urgency", order: "ascending" }[key])).toString();
  }

  /** Returns the address of the models with a problem, with the rest of the current filter. @param {string} problem */
  function problemLink(problem) {
    const parameters = new URLSearchParams(query.namespace ? { namespace: query.namespace, problem } : { problem });
    return `#/?${parameters}`;
  }

  /** Changes the query, and the page's URL with it. @param {Partial<typeof query>} changes */
  function change(changes) {
    Object.assign(query, changes, { offset: 0 });
    const shared = sharedQuery();
    history.replaceState(null, "", `#/${shared ? `?${shared}` : ""}`);
    scroller.scrollTop = 0;
    openStream();
  }

  function pageRows() {
    return Math.min(Math.max(2 * Math.ceil(scroller.clientHeight / rowPx), LEAST_ROWS), MOST_ROWS);
  }

  /** Returns the positions of the first row in sight, and of the one after the last. @param {number} matched */
  function inSight(matched) {
    const first = Math.max(Math.floor(scroller.scrollTop / rowPx) - 1, 0);
    return { first, end: Math.min(first + Math.ceil(scroller.clientHeight / rowPx) + 1, matched) };
  }

  /** Requests another page if rows that are now visible are not in this one. */
  function loadVisibleRows() {
    if (!fleet) return;
    const { first, end } = inSight(fleet.matched);
    if (first >= fleet.offset && end <= fleet.offset + fleet.rows.length) return;
    const offset = Math.max(0, first - Math.floor((pageRows() - (end - first)) / 2));
    if (offset === query.offset) return;
    query.offset = offset;
    debounce(openStream);
  }

  /** Reserves space for the rows without an element. @param {number} first position of the first row that exists @param {number} end position after the last one */
  function makeRoom(first, end) {
    pad.style.paddingTop = `${first * rowPx}px`;
    pad.style.paddingBottom = `${Math.max((fleet?.matched ?? 0) - end, 0) * rowPx}px`;
  }

  function openStream() {
    clearTimeout(timer);
    end();
    const parameters = new URLSearchParams({ ...query, offset: String(query.offset), limit: String(pageRows()) });
    end = follow(`/api/stream/models?${parameters}`, `/api/models?${parameters}`, "models", {
      document: draw,
      state: listener.state,
      failed: (/** @type {RequestError} */ error) => (error.status === 401 ? listener.signIn(error) : listener.state(false, error.message)),
    });
  }

  /** @param {Fleet} now */
  function draw(now) {
    const before = fleet;
    fleet = now;
    const { offset, matched, rows: documents } = now;
    const sight = inSight(matched); // before anything changes, so that it needs no layout
    const fresh = JSON.stringify({ ...now, ...query, rows: [], offset: 0 });
    if (fresh !== summary) drawSummary(now);
    summary = fresh;
    if (!before || before.matched !== matched) setText(byId("announcement"), matches.textContent);
    const minute = Math.floor(secondsNow() / 60); // the ages change with it
    const lines = documents.map((row) => ({ key: `${row.namespace}/${row.name}`, text: `${minute} ${JSON.stringify(row)}`, row }));
    rows.show(lines, offset, sight.first, sight.end);
    if (!matched) body.replaceChildren(empty(now));
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(measure);
  }

  /** Reads the height of a row, which depends on the browser's fonts. In the next frame, so that it needs no layout of its own. */
  function measure() {
    const row = fleet?.matched ? body.querySelector("tr") : null;
    const heightPx = row?.getBoundingClientRect().height || rowPx;
    if (heightPx !== rowPx) {
      rowPx = heightPx;
      rows.makeRoom();
    }
    loadVisibleRows();
  }

  /** Draws what is above the rows. @param {Fleet} now */
  function drawSummary(now) {
    table.setAttribute("aria-rowcount", String(now.matched + 1));
    heads.forEach((head, index) => {
      const column = COLUMNS[index];
      if (!column.sort) return;
      head.setAttribute("aria-sort", column.sort === query.sort ? query.order : "none");
    });
    refill(tiles, ...totals(now, problemLink));
    refill(namespace, ...["", ...new Set([...now.namespaces, ...(query.namespace ? [query.namespace] : [])])].map((value) => h("option", { value: value, selected: value === query.namespace }, value || "All namespaces")));
    namespace.value = query.namespace;
    panel.hidden = !now.rollouts.length;
    refill(rolling, ...rollouts(now));
    refill(
      states,
      ...(now.troubled || query.problem ? [chip("problem", "any", "Problems", now.troubled)] : []),
      ...problemCounts(now).filter(([problem, models]) => (models && !["stalled", "unready", "limited"].includes(problem)) || query.problem === problem).map(([problem, models]) => chip("problem", problem, PROBLEM_NAMES[problem], models)),
      ...stateCounts(now).filter(([state, models]) => models || query.state === state).map(([state, models]) => chip("state", state, STATE_NAMES[state], models)),
    );
    setText(matches, now.synced ? `${plural(now.matched, "model")}${now.matched === now.total ? "" : ` of ${now.total}`}` : FILLING);
  }

  /** @param {"problem" | "state"} key @param {string} value @param {string} name @param {number} models */
  function chip(key, value, name, models) {
    return h("button", { type: "button", "aria-pressed": String(query[key] === value), class: `chip ${key === "problem" ? "wrong" : value}`, [`data-${key}`]: value }, `${name} ${models}`);
  }
  states.addEventListener("click", (event) => {
    const { state, problem } = (event.target instanceof Element && event.target.closest("button")?.dataset) || {};
    if (state) change({ state: query.state === state ? "" : state, problem: "" });
    if (problem) change({ problem: query.problem === problem ? "" : problem, state: "" });
  });

  /** @param {ShownRow} row */
  function line(row) {
    const cells = COLUMNS.map((column) => h(column.key === "model" ? "th" : "td", { class: column.wrong?.(row) ? `${column.class} bad` : column.class, scope: column.key === "model" ? "row" : null }, ...column.cell(row)));
    return h("tr", { class: row.problems.length ? "wrong" : null, "data-key": `${row.namespace}/${row.name}` }, ...cells);
  }

  /** @param {Fleet} now */
  function empty(now) {
    const none = "There are no ModelDeployments that you may see. To create one: kubectl apply -f manifests/examples/minimal.yaml";
    const text = !now.synced ? FILLING : now.total || query.namespace ? "No model matches the filter." : none;
    return h("tr", {}, h("td", { colspan: COLUMNS.length, class: "empty" }, text));
  }

  openStream();
  return () => {
    clearTimeout(timer);
    cancelAnimationFrame(frame);
    rows.stop();
    end();
  };
}

/** @param {Fleet} now */
function stateCounts(now) {
  return /** @type {[State, number][]} */ (Object.entries(now.counts));
}

/** @param {Fleet} now */
function problemCounts(now) {
  return /** @type {[import("../documents.js").Problem, number][]} */ (Object.entries(now.problems));
}
