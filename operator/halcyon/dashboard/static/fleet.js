// The fleet: a table that only contains the visible rows. The operator filters, sorts and pages.

import { follow, modelPath, RequestError } from "./api.js";
import { sparkline } from "./spark.js";
import { byId, h, input, refill, setText } from "./dom.js";
import { age, millis, NONE, number, percent, plural } from "./format.js";

/** @typedef {import("../documents.js").Fleet} Fleet */
/** @typedef {import("../documents.js").ShownRow} ShownRow */
/** @typedef {import("../documents.js").State} State */

const PAGE = 100;
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

/** @type {{key: string, title: string, sort: string | null, class: string, cell: (row: ShownRow) => (Node | string)[]}[]} */
const COLUMNS = [
  { key: "model", title: "Model", sort: "name", class: "name", cell: (row) => [h("a", { href: `#/${modelPath(row.namespace, row.name)}` }, row.name), h("span", { class: "space" }, row.namespace)] },
  { key: "state", title: "State", sort: "state", class: "", cell: (row) => [badge(row.state), row.reason !== STATE_NAMES[row.state] ? h("span", { class: "reason" }, row.reason) : ""] },
  { key: "replicas", title: "Replicas", sort: "replicas", class: "n", cell: (row) => [h("span", { title: row.why || "" }, `${row.ready ?? NONE}/${row.replicas}`), row.max === null ? "" : h("span", { class: "small" }, `${row.min}–${row.max}`)] },
  { key: "queue", title: "Queue", sort: "queue", class: "n", cell: (row) => [number(row.queue), row.queue_target === null ? "" : h("span", { class: "small" }, `of ${number(row.queue_target)}`)] },
  { key: "gpu", title: "GPU", sort: "gpu", class: "n wide", cell: (row) => [percent(row.gpu)] },
  { key: "latency", title: "Latency, p95", sort: "latency", class: "n wide", cell: (row) => [millis(row.latency)] },
  { key: "rate", title: "Requests/s", sort: "rate", class: "n mid", cell: (row) => [number(row.rate)] },
  { key: "spark", title: "10 min", sort: null, class: "wide", cell: (row) => [sparkline(row.sparks, `Requests per second of ${row.name} over ten minutes`)] },
  { key: "errors", title: "Errors", sort: "errors", class: "n wider", cell: (row) => [percent(row.errors)] },
  { key: "gpus", title: "GPUs", sort: "gpus", class: "n wider", cell: (row) => [number(row.gpus)] },
  { key: "cost", title: "Cost/h", sort: "cost", class: "n wider", cell: (row) => [number(row.cost)] },
  { key: "age", title: "Age", sort: "age", class: "n wider", cell: (row) => [age(row.created)] },
];

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
  document.title = "Models · Halcyon";
  const query = { text: params.get("text") || "", state: params.get("state") || "", sort: params.get("sort") || "state", order: params.get("order") || "ascending", offset: 0 };
  let end = () => {};
  /** @type {Fleet | null} */
  let fleet = null;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  let rowPx = 44;

  const filter = input({ id: "filter", type: "search", maxlength: 200, value: query.text, placeholder: "namespace, name, reason, image", oninput: () => debounce(() => change({ text: filter.value })) });
  const states = h("div", { class: "states", role: "group", "aria-label": "Show only models in this state" });
  const count = h("p", { class: "count" });
  const heads = COLUMNS.map((column) =>
    h(
      "th",
      { scope: "col", class: column.class },
      column.sort ? h("button", { type: "button", onclick: () => column.sort && sort(column.sort) }, column.title, h("span", { class: "arrow", "aria-hidden": "true" })) : column.title,
    ),
  );
  const body = h("tbody");
  const table = h("table", { "aria-label": "Models" }, h("thead", {}, h("tr", { "aria-rowindex": 1 }, ...heads)), body);
  const pad = h("div", {}, table);
  const scroller = h("div", { class: "scroller", role: "region", tabindex: 0, "aria-label": "Table of models, scrollable", onscroll: () => loadVisibleRows() }, pad);
  main.replaceChildren(
    h("div", { class: "bar" }, h("h1", {}, "Models"), h("label", { for: "filter" }, "Filter"), filter, h("kbd", { title: "Press / to go to the filter" }, "/"), count),
    states,
    scroller,
  );
  table.addEventListener("keydown", (event) => {
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    const links = /** @type {HTMLElement[]} */ ([...body.querySelectorAll("th.name a")]);
    const next = links[links.findIndex((one) => one === document.activeElement) + (event.key === "ArrowDown" ? 1 : -1)];
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
    change({ sort: key, order: same && query.order === "ascending" ? "descending" : same ? "ascending" : ["name", "state"].includes(key) ? "ascending" : "descending" });
  }

  /** Changes the query, and the page's URL with it. @param {Partial<typeof query>} changes */
  function change(changes) {
    Object.assign(query, changes, { offset: 0 });
    const shared = new URLSearchParams(Object.entries({ text: query.text, state: query.state, sort: query.sort, order: query.order }).filter(([key, value]) => value && !(key === "sort" && value === "state") && !(key === "order" && value === "ascending")));
    history.replaceState(null, "", `#/${shared.size ? `?${shared}` : ""}`);
    scroller.scrollTop = 0;
    openStream();
  }

  /** Requests another page if rows that are now visible are not in this one. */
  function loadVisibleRows() {
    if (!fleet) return;
    const first = Math.max(Math.floor(scroller.scrollTop / rowPx) - 1, 0);
    const last = Math.min(first + Math.ceil(scroller.clientHeight / rowPx) + 1, fleet.matched);
    if (first >= fleet.offset && last <= fleet.offset + fleet.rows.length) return;
    const offset = Math.max(0, first - Math.floor((PAGE - (last - first)) / 2));
    if (offset === query.offset) return;
    query.offset = offset;
    debounce(openStream);
  }

  function openStream() {
    clearTimeout(timer);
    end();
    const parameters = new URLSearchParams({ ...query, offset: String(query.offset), limit: String(PAGE) });
    end = follow(`/api/stream/models?${parameters}`, `/api/models?${parameters}`, "models", {
      document: draw,
      state: listener.state,
      failed: (/** @type {RequestError} */ error) => (error.status === 401 ? listener.signIn(error) : listener.state(false, error.message)),
    });
  }

  /** @param {Fleet} now */
  function draw(now) {
    const before = fleet;
    const { offset, matched, rows: documents } = (fleet = now);
    table.setAttribute("aria-rowcount", String(matched + 1));
    heads.forEach((head, index) => {
      const column = COLUMNS[index];
      if (!column.sort) return;
      head.setAttribute("aria-sort", column.sort === query.sort ? query.order : "none");
    });
    refill(states, ...stateCounts(now).filter(([state, models]) => models || query.state === state).map(([state, models]) => chip(state, models)));
    setText(count, now.synced ? `${plural(matched, "model")}${matched === now.total ? "" : ` of ${now.total}`}, ${plural(now.gpus, "GPU")}${now.cost === null ? "" : `, ${number(now.cost)} ${now.currency} per hour`}` : "The operator is still filling its caches.");
    if (!before || before.matched !== matched) setText(byId("announcement"), count.textContent);
    const focused = document.activeElement?.closest("tr")?.dataset.key;
    const rows = documents.map((row, index) => line(row, offset + index));
    body.replaceChildren(...(rows.length ? rows : [empty(now)]));
    if (rows.length) rowPx = rows[0].getBoundingClientRect().height;
    pad.style.paddingTop = `${offset * rowPx}px`;
    pad.style.paddingBottom = `${Math.max(matched - offset - rows.length, 0) * rowPx}px`;
    const refocused = focused && body.querySelector(`tr[data-key="${CSS.escape(focused)}"] a`);
    if (refocused instanceof HTMLElement) refocused.focus({ preventScroll: true });
    loadVisibleRows();
  }

  /** @param {State} state @param {number} models */
  function chip(state, models) {
    const pressed = query.state === state;
    return h("button", { type: "button", "aria-pressed": String(pressed), class: `chip ${state}`, "data-state": state }, `${STATE_NAMES[state]} ${models}`);
  }
  states.addEventListener("click", (event) => {
    const state = event.target instanceof Element ? event.target.closest("button")?.dataset.state : undefined;
    if (state) change({ state: query.state === state ? "" : state });
  });

  /** @param {ShownRow} row @param {number} index among all rows that match */
  function line(row, index) {
    const cells = COLUMNS.map((column) => h(column.key === "model" ? "th" : "td", { class: column.class, scope: column.key === "model" ? "row" : null }, ...column.cell(row)));
    return h("tr", { "aria-rowindex": index + 2, "data-key": `${row.namespace}/${row.name}` }, ...cells);
  }

  /** @param {Fleet} now */
  function empty(now) {
    const text = now.total ? "No model matches the filter." : "There are no ModelDeployments that you may see. To create one: kubectl apply -f manifests/examples/minimal.yaml";
    return h("tr", {}, h("td", { colspan: COLUMNS.length, class: "empty" }, text));
  }

  openStream();
  return () => {
    clearTimeout(timer);
    end();
  };
}

/** @param {Fleet} now */
function stateCounts(now) {
  return /** @type {[State, number][]} */ (Object.entries(now.counts));
}
