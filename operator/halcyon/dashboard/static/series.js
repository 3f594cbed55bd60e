// Points of a model's last hour on its page: those that the operator had when it was opened, and those that arrived since.

/** @typedef {import("../documents.js").Series} Series */

const MAX_POINTS = 360;
export const FIELDS = /** @type {const} */ (["replicas", "ready", "desired", "gpu", "rate", "waiting", "in_triton", "p50", "p95", "p99", "batch", "rejected", "lost", "failed", "errors"]);

/** Adds the newest point, and unknown points for the gap before it. Returns true if there is a gap. @param {Series} series @param {Series} newest */
export function append(series, newest) {
  if (!newest.end || newest.end <= series.end) return false;
  const missed = series.end ? Math.min(Math.round((newest.end - series.end) / series.step) - 1, MAX_POINTS) : 0;
  for (const field of FIELDS) {
    const values = series[field] || [];
    for (let index = 0; index < missed; index += 1) values.push(null);
    values.push(newest[field].at(-1) ?? null);
    series[field] = values.slice(-MAX_POINTS);
  }
  series.end = newest.end;
  return missed > 0;
}

/** Replaces unknown points by those that the operator has. @param {Series} series @param {Series} stored */
export function fill(series, stored) {
  const ahead = Math.round((series.end - stored.end) / series.step);
  for (const field of FIELDS) {
    const values = series[field];
    stored[field].forEach((value, index) => {
      const at = values.length - ahead - stored[field].length + index;
      if (at >= 0 && at < values.length) values[at] ??= value;
    });
  }
}
