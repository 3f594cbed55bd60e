// A small line chart without axes, for a row of the fleet. It is an SVG path, because a hundred rows would need a hundred canvases.

import { svg } from "./dom.js";

/** Draws the values, with gaps for unknown ones. @param {import("../documents.js").Values} values @param {string} label */
export function sparkline(values, label) {
  const largest = Math.max(...values.map((value) => value ?? 0), 0) || 1;
  const stepPx = 96 / Math.max(values.length - 1, 1);
  let path = "";
  let isDown = false;
  values.forEach((value, index) => {
    if (value !== null) path += `${isDown ? "L" : "M"}${(2 + index * stepPx).toFixed(1)} ${(22 - (value / largest) * 20).toFixed(1)}${isDown ? "" : "h.1"}`;
    isDown = value !== null;
  });
  return svg("svg", { viewBox: "0 0 100 24", width: 100, height: 24, role: "img", "aria-label": label, class: "spark" }, svg("path", { d: path }));
}
