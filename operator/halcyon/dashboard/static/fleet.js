// The fleet: a table of which only the rows in sight exist; the operator filters, sorts and pages.

import { follow, modelPath, Refused } from "./api.js";
import { sparkline } from "./spark.js";
import { byId, h, input, refill, say } from "./dom.js";
import { age, millis, NONE, number, percent, plural } from "./format.js";

/** @typedef {import("../documents.js").Fleet} Fleet */
/** @typedef {import("../documents.js").ShownRow} ShownRow */
/** @typedef {import("../documents.js").State} State */

const PAGE = 100;
/** @type {Record<State, string>} */
const WORDS = {
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
  { key: "state", title: "State", sort: "state", class: "", cell: (row) => [badge(row.state), row.reason !== WORDS[row.state] ? h("span", { class: "reason" }, row.reason) : ""] },
  { key: "replicas", title: "Replicas", sort: "replicas", class: "n", cell: (row) => [h("span", { title: row.why || "" }, `${row.ready ?? NONE}/${row.replicas}`), row.max === null ? "" : h("span", { class: "small" }, `${row.min}–${row.max}`)] },
  { key: "queue", title: "Queue", sort: "queue", class: "n", cell: (row) => [number(row.queue), row.queue_target === null ? "" : h("span", { class: "small" }, `of ${number(row.queue_target)}`)] },
  { key: "gpu", title: "GPU", sort: "gpu", class: "n wide", cell: (row) => [percent(row.gpu)] },
  { key: "latency", title: "Latency", sort: "latency", class: "n wide", cell: (row) => [millis(row.latency)] },
  { key: "rate", title: "Requests/s", sort: "rate", class: "n mid", cell: (row) => [number(row.rate)] },
  { key: "spark", title: "10 min", sort: null, class: "wide", cell: (row) => [sparkline(row.sparks, `Requests per second of ${row.name} over ten minutes`)] },
  { key: "errors", title: "Errors", sort: "errors", class: "n wider", cell: (row) => [percent(row.errors)] },
  { key: "gpus", title: "GPUs", sort: "gpus", class: "n wider", cell: (row) => [number(row.gpus)] },
  { key: "cost", title: "Cost/h", sort: "cost", class: "n wider", cell: (row) => [number(row.cost)] },
  { key: "age", title: "Age", sort: "age", class: "n wider", cell: (row) => [age(row.created)] },
];

/** @param {State} state */
export function badge(state) {
  return h("span", { class: `badge ${state}` }, WORDS[state] || state);
}

/**
 * @param {HTMLElement} main
 * @param {URLSearchParams} params of the address
 * @param {import("../documents.js").Heard} heard
 * @returns {() => void} ends it
 */
export function fleetPage(main, params, heard) {
  document.title = "Models · Halcyon";
  const ask = { text: params.get("text") || "", state: params.get("state") || "", sort: params.get("sort") || "state", order: params.get("order") || "ascending", offset: 0 };
  let end = () => {};
  /** @type {Fleet | null} */
  let found = null;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let pause;
  let rowPx = 44;

  const filter = input({ id: "filter", type: "search", maxlength: 200, value: ask.text, placeholder: "namespace, name, reason, image", oninput: () => later(() => change({ text: filter.value })) });
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
  const room = h("div", { class: "room", role: "region", tabindex: 0, "aria-label": "Table of models, to be scrolled", onscroll: () => look() }, pad);
  main.replaceChildren(
    h("div", { class: "bar" }, h("h1", {}, "Models"), h("label", { for: "filter" }, "Filter"), filter, h("kbd", { title: "The key / goes to the filter" }, "/"), count),
    states,
    room,
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

  /** @param {() => void} act */
  function later(act) {
    clearTimeout(pause);
    pause = setTimeout(act, 150);
  }

  /** @param {string} key */
  function sort(key) {
    const same = ask.sort === key;
    change({ sort: key, order: same && ask.order === "ascending" ? "descending" : same ? "ascending" : ["name", "state"].includes(key) ? "ascending" : "descending" });
  }

  /** Asks another question, which the address tells too. @param {Partial<typeof ask>} wanted */
  function change(wanted) {
    Object.assign(ask, wanted, { offset: 0 });
    const told = new URLSearchParams(Object.entries({ text: ask.text, state: ask.state, sort: ask.sort, order: ask.order }).filter(([key, value]) => value && !(key === "sort" && value === "state") && !(key === "order" && value === "ascending")));
    history.replaceState(null, "", `#/${told.size ? `?${told}` : ""}`);
    room.scrollTop = 0;
    listen();
  }

  /** Asks for another page where rows come into sight that this one lacks. */
  function look() {
    if (!found) return;
    const first = Math.max(Math.floor(room.scrollTop / rowPx) - 1, 0);
    const last = Math.min(first + Math.ceil(room.clientHeight / rowPx) + 1, found.matched);
    if (first >= found.offset && last <= found.offset + found.rows.length) return;
    const offset = Math.max(0, first - Math.floor((PAGE - (last - first)) / 2));
    if (offset === ask.offset) return;
    ask.offset = offset;
    later(listen);
  }

  function listen() {
    clearTimeout(pause);
    end();
    const query = new URLSearchParams({ ...ask, offset: String(ask.offset), limit: String(PAGE) });
    end = follow(`/api/stream/models?${query}`, `/api/models?${query}`, "models", {
      document: draw,
      state: heard.state,
      refused: (/** @type {Refused} */ error) => (error.status === 401 ? heard.signIn(error) : heard.state(false, error.message)),
    });
  }

  /** @param {Fleet} now */
  function draw(now) {
    const before = found;
    const { offset, matched, rows: seen } = (found = now);
    table.setAttribute("aria-rowcount", String(matched + 1));
    heads.forEach((head, index) => {
      const of = COLUMNS[index];
      if (!of.sort) return;
      head.setAttribute("aria-sort", of.sort === ask.sort ? ask.order : "none");
    });
    refill(states, ...counted(now).filter(([state, many]) => many || ask.state === state).map(([state, many]) => chip(state, many)));
    say(count, now.synced ? `${plural(matched, "model")}${matched === now.total ? "" : ` of ${now.total}`}, ${plural(now.gpus, "GPU")}${now.cost === null ? "" : `, ${number(now.cost)} ${now.currency} an hour`}` : "The operator is still filling its caches.");
    if (!before || before.matched !== matched) say(byId("said"), count.textContent);
    const focused = document.activeElement?.closest("tr")?.dataset.key;
    const rows = seen.map((row, index) => line(row, offset + index));
    body.replaceChildren(...(rows.length ? rows : [empty(now)]));
    if (rows.length) rowPx = rows[0].getBoundingClientRect().height;
    pad.style.paddingTop = `${offset * rowPx}px`;
    pad.style.paddingBottom = `${Math.max(matched - offset - rows.length, 0) * rowPx}px`;
    const kept = focused && body.querySelector(`tr[data-key="${CSS.escape(focused)}"] a`);
    if (kept instanceof HTMLElement) kept.focus({ preventScroll: true });
    look();
  }

  /** @param {State} state @param {number} many */
  function chip(state, many) {
    const pressed = ask.state === state;
    return h("button", { type: "button", "aria-pressed": String(pressed), class: `chip ${state}`, "data-state": state }, `${WORDS[state]} ${many}`);
  }
  states.addEventListener("click", (event) => {
    const state = event.target instanceof Element ? event.target.closest("button")?.dataset.state : undefined;
    if (state) change({ state: ask.state === state ? "" : state });
  });

  /** @param {ShownRow} row @param {number} index of all that match */
  function line(row, index) {
    const cells = COLUMNS.map((column) => h(column.key === "model" ? "th" : "td", { class: column.class, scope: column.key === "model" ? "row" : null }, ...column.cell(row)));
    return h("tr", { "aria-rowindex": index + 2, "data-key": `${row.namespace}/${row.name}` }, ...cells);
  }

  /** @param {Fleet} now */
  function empty(now) {
    const text = now.total ? "No model is like that." : "There is no ModelDeployment that you may see. Make one: kubectl apply -f manifests/examples/digits.yaml";
    return h("tr", {}, h("td", { colspan: COLUMNS.length, class: "empty" }, text));
  }

  listen();
  return () => {
    clearTimeout(pause);
    end();
  };
}

/** @param {Fleet} now */
function counted(now) {
  return /** @type {[State, number][]} */ (Object.entries(now.counts));
}
