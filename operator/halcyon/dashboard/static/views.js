// Saved views: names for filters of the fleet's page. A view is the page's URL, so it can be shared; the names are kept in this browser.

import { h, input, refill } from "./dom.js";

const KEY = "views";
const MAX_VIEWS = 12;
const MAX_NAME = 40;

/** @typedef {{name: string, query: string}} View */

/** Reads the saved views; entries of another shape are skipped. @returns {View[]} */
export function savedViews() {
  try {
    const stored = JSON.parse(localStorage.getItem(KEY) || "[]");
    if (!Array.isArray(stored)) return [];
    return stored.filter((view) => typeof view?.name === "string" && typeof view?.query === "string").slice(0, MAX_VIEWS);
  } catch {
    return [];
  }
}

/** @param {View[]} views */
function keep(views) {
  try {
    localStorage.setItem(KEY, JSON.stringify(views));
  } catch {
    // The browser stores nothing: the view stays in the page's URL.
  }
}

/**
 * Creates the list of saved views and the form to save the current one.
 * @param {() => string} current returns the query of the page's URL
 * @param {(query: string) => void} open
 */
export function viewList(current, open) {
  const name = input({ type: "text", maxlength: MAX_NAME, "aria-label": "Name of the view", placeholder: "name", size: 12, hidden: true });
  const save = h("button", { type: "submit" }, "Save view");
  const list = h("span", { class: "views" });
  const form = h("form", { class: "views", onsubmit: (/** @type {Event} */ event) => submit(event) }, list, name, save);

  /** @param {Event} event */
  function submit(event) {
    event.preventDefault();
    if (name.hidden) {
      name.hidden = false;
      name.focus();
      return;
    }
    const view = { name: name.value.trim().slice(0, MAX_NAME), query: current() };
    if (!view.name) return;
    keep([...savedViews().filter((other) => other.name !== view.name), view].slice(-MAX_VIEWS));
    name.value = "";
    name.hidden = true;
    save.focus();
    draw();
  }

  function draw() {
    refill(list, ...savedViews().map((view) => h("span", { class: "view" }, h("button", { type: "button", "data-view": view.name }, view.name), h("button", { type: "button", "data-drop": view.name, "aria-label": `Delete the view ${view.name}` }, "×"))));
  }

  list.addEventListener("click", (event) => {
    const button = event.target instanceof Element ? event.target.closest("button") : null;
    const views = savedViews();
    const view = views.find((candidate) => candidate.name === button?.dataset.view);
    if (view) open(view.query);
    if (!button?.dataset.drop) return;
    keep(views.filter((candidate) => candidate.name !== button.dataset.drop));
    draw();
    save.focus();
  });
  name.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    name.hidden = true;
    save.focus();
  });
  draw();
  return form;
}
