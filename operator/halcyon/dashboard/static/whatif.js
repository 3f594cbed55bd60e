// The what-if calculation of a model: the replicas that other targets would have required.

import { get } from "./api.js";
import { Chart, Cursor } from "./chart.js";
import { errorMessage, h, input, refill } from "./dom.js";
import { duration, millis, NONE, number } from "./format.js";
import { row, table } from "./tables.js";

/** Calculates the replicas that other targets would require for the arrivals that the planner remembers. @param {string} path of the model */
export function whatIf(path) {
  const chart = new Chart({
    title: "Replicas for these arrivals",
    lines: [
      { field: "current", name: "current targets", style: "first", stepped: true },
      { field: "alternative", name: "what if", style: "second", stepped: true },
    ],
    format: number,
    least: 1,
    integers: true,
    cursor: new Cursor(),
  });
  /** @param {string} label @param {HTMLInputElement} input */
  const field = (label, input) => h("span", { class: "field" }, h("label", { for: input.id }, label), " ", input);
  const unchanged = { autocomplete: "off", placeholder: "current" };
  const latency = input({ ...unchanged, id: "if-latency", size: 8, pattern: "[0-9.]+(us|ms|s|m).*", title: "For example 200ms" });
  const minimum = input({ ...unchanged, id: "if-min", type: "number", min: 0, max: 1000 });
  const maximum = input({ ...unchanged, id: "if-max", type: "number", min: 1, max: 1000 });
  const hours = input({ autocomplete: "off", id: "if-hours", type: "number", min: 1, max: 360, value: 24, required: true });
  const fields = [field("Latency", latency), field("Minimum replicas", minimum), field("Maximum replicas", maximum), field("Past hours", hours)];
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
