// Totals over the fleet, and the rollouts in progress.

import { modelPath } from "./api.js";
import { h } from "./dom.js";
import { missing, money, percent, plural, rate, integer } from "./format.js";

/** @typedef {import("../documents.js").Fleet} Fleet */
/** @typedef {import("../documents.js").Rollout} Rollout */

/**
 * Returns the tiles with the totals; each count of models links to these models.
 * @param {Fleet} fleet
 * @param {(problem: string) => string} link returns the address of the models with a problem
 */
export function totals(fleet, link) {
  const { problems, gpus, allocatable } = fleet;
  const silent = fleet.total - fleet.reporting;
  const reports = silent && fleet.reporting ? small(` ${fleet.reporting} of ${fleet.total} report`) : "";
  const noReport = fleet.total ? "No model has reported in the last 15 s." : "There are no models.";
  const share = fleet.rate && fleet.errors !== null ? small(` ${percent((fleet.errors / fleet.rate) * 100)}`) : "";
  const unhealthy = problems.unready + problems.stalled;
  const free = allocatable.gpus === null ? [" of ", missing(allocatable.why)] : [` of ${integer(allocatable.gpus)}`];
  return [
    tile("Requests/s", "", fleet.rate === null ? missing(noReport) : rate(fleet.rate), reports),
    tile("Errors/s", problems.errors ? "bad" : "", counted(fleet.errors === null ? missing(noReport) : rate(fleet.errors), problems.errors, link("errors")), share),
    tile("Missing their latency objective", problems.slow ? "bad" : fleet.judged ? "fine" : "", fleet.judged ? counted(String(problems.slow), problems.slow, link("slow")) : missing("No model has an objective (spec.scaling.targets.latency) and responses in the last 10 s."), fleet.judged ? small(` of ${fleet.judged}`) : ""),
    tile("Unhealthy", unhealthy ? "bad" : fleet.total ? "fine" : "", counted(String(unhealthy), unhealthy, link("unhealthy")), small(` of ${plural(fleet.total, "model")}`)),
    tile("GPUs used", "", integer(gpus), h("small", {}, ...free, " allocatable")),
    tile("Cost per hour", "", fleet.cost === null ? missing("No model has GPUs with a price (cost.pricePerGpuHour in the chart's values).") : money(fleet.cost), fleet.cost === null ? "" : small(` ${fleet.currency}`)),
  ];
}

/** @param {string} name @param {string} style @param {Node | string} value @param {Node | string} more */
function tile(name, style, value, more) {
  return h("div", { class: style || null }, h("dt", {}, name), h("dd", {}, value, more));
}

/** @param {string} text */
function small(text) {
  return h("small", {}, text);
}

/** Returns a value that links to the models behind it, if there are any. @param {Node | string} value @param {number} models @param {string} href */
function counted(value, models, href) {
  return models ? h("a", { href, title: `Show ${plural(models, "model")}` }, value) : value;
}

/** @param {Fleet} fleet */
export function rollouts(fleet) {
  const more = fleet.rolling - fleet.rollouts.length;
  return [
    ...fleet.rollouts.map((rollout) => h("li", {}, h("span", {}, h("a", { href: `#/${modelPath(rollout.namespace, rollout.name)}` }, rollout.name), h("span", { class: "space" }, ` ${rollout.namespace}`)), h("span", { class: "progress" }, ...progress(rollout)), h("span", { class: "hint", title: rollout.message }, rollout.message))),
    ...(more > 0 ? [h("li", { class: "hint" }, `${plural(more, "more rollout")}`)] : []),
  ];
}

/** Returns a bar with the progress of a rollout, and its text. @param {Rollout} rollout */
export function progress(rollout) {
  if (["RolledBack", "Failed"].includes(rollout.phase)) return [h("span", { class: "badge stalled" }, rollout.phase === "Failed" ? "Failed" : "Rolled back")];
  const share = rollout.weight ?? (rollout.pods ? ((rollout.updated ?? 0) / rollout.pods) * 100 : null);
  const text =
    rollout.weight !== null
      ? `${rollout.strategy}, ${rollout.weight} % of the requests${rollout.paused ? ", paused" : ""}`
      : rollout.pods === null || rollout.updated === null
        ? rollout.phase
        : `${rollout.phase}, ${rollout.updated} of ${rollout.pods} pods updated`;
  return [share === null ? "" : h("progress", { max: 100, value: Math.round(share), "aria-label": "Progress of the rollout" }), h("span", { class: "small" }, text)];
}
