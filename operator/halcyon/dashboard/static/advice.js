// Advice on a model's page: changes of the spec that would help. The dashboard makes none of them.

import { h } from "./dom.js";
import { clock, NONE, seconds } from "./format.js";
import { row, scroller, table } from "./tables.js";

/** Returns the heading and the table, the largest gain first; nothing without advice. @param {import("../documents.js").Model} page */
export function adviceList(page) {
  if (!page.advice.length) return [];
  const rows = page.advice.map((item) => row(item.field, item.currentValue ?? NONE, item.value, h("div", { class: "evidence" }, h("b", {}, item.gain), h("span", { class: "reason" }, item.evidence)), h("span", { class: "time" }, clock(seconds(item.since)))));
  return [h("h2", { id: "h-advice" }, "Advice"), scroller("Advice", table(["Field", "Now", "Advised", "Gain and evidence", "Since"], h("tbody", {}, ...rows), "Advice")), h("p", { class: "hint" }, "Halcyon never makes these changes. The advice reference explains each rule.")];
}
