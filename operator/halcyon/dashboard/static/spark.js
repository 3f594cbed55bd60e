// A small line without axes, for a row of the fleet: a path in the row itself, because a hundred rows would be a hundred canvases.

import { svg } from "./dom.js";

/** Gaps where nothing is known. @param {import("../documents.js").Values} values @param {string} label */
export function sparkline(values, label) {
  const most = Math.max(...values.map((value) => value ?? 0), 0) || 1;
  const wide = 96 / Math.max(values.length - 1, 1);
  let path = "";
  let isDown = false;
  values.forEach((value, index) => {
    if (value !== null) path += `${isDown ? "L" : "M"}${(2 + index * wide).toFixed(1)} ${(22 - (value / most) * 20).toFixed(1)}${isDown ? "" : "h.1"}`;
    isDown = value !== null;
  });
  return svg("svg", { viewBox: "0 0 100 24", width: 100, height: 24, role: "img", "aria-label": label, class: "spark" }, svg("path", { d: path }));
}
