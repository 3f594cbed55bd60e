// Tables of the page of a model.

import { h } from "./dom.js";

/** @param {string[]} heads @param {Node} body @param {string | null} label */
export function table(heads, body, label = null) {
  return h("table", { "aria-label": label }, h("thead", {}, h("tr", {}, ...heads.map((head) => (head ? h("th", { scope: "col" }, head) : h("td"))))), body);
}

/** Wraps a wide table, so that it scrolls by itself and the page doesn't. @param {string} label @param {Node} child @param {string} style */
export function scroller(label, child, style = "") {
  return h("div", { class: `wide-scroller ${style}`, role: "region", tabindex: 0, "aria-label": `${label}, scrollable` }, child);
}

/** @param {string} first @param {...(Node | string | number)} cells */
export function row(first, ...cells) {
  return h("tr", {}, h("th", { scope: "row" }, first), ...cells.map((cell) => h("td", {}, cell)));
}

/** @param {number} columns @param {string} text */
export function none(columns, text) {
  return h("tr", {}, h("td", { colspan: columns, class: "empty" }, text));
}
