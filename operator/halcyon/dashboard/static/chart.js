// Charts as SVG: lines over time with a cursor that all charts of a page share, marks, and sparklines.
// What a chart shows can be read by keyboard too: its arrows move the cursor, and the line below tells what is there.

import { h, say, svg } from "./dom.js";
import { clock, NONE } from "./format.js";

const HEIGHT = 150;
const LEFT = 46;
const RIGHT = 8;
const TOP = 12;
const BOTTOM = 20;

/** @typedef {import("../documents.js").Values} Values */

/** A small line without axes; gaps where nothing is known. @param {Values} values @param {string} label */
export function sparkline(values, label) {
  const most = Math.max(...known(values), 0) || 1;
  const path = line(values, (index) => (values.length < 2 ? 0 : (index / (values.length - 1)) * 96 + 2), (value) => 22 - (value / most) * 20);
  return svg("svg", { viewBox: "0 0 100 24", width: 100, height: 24, role: "img", "aria-label": label, class: "spark" }, svg("path", { d: path }));
}

/** @param {(number | null | undefined)[]} values @returns {number[]} */
function known(values) {
  return values.filter((value) => value !== null && value !== undefined);
}

/**
 * Path data of the values that are known.
 * @param {Values} values
 * @param {(index: number) => number} x
 * @param {(value: number) => number} y
 */
function line(values, x, y, stepped = false) {
  let path = "";
  /** @type {number | null} */
  let before = null;
  values.forEach((value, index) => {
    if (value === null || value === undefined) {
      before = null;
      return;
    }
    const at = `${x(index).toFixed(1)} ${y(value).toFixed(1)}`;
    if (before === null) path += `M${at}h.1`;
    else if (stepped) path += `H${x(index).toFixed(1)}V${y(value).toFixed(1)}`;
    else path += `L${at}`;
    before = value;
  });
  return path;
}

/** The least round number that is not below `value`. @param {number} value */
function above(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 3, 5].map((factor) => factor * power).find((round) => round >= value * 0.9999) ?? 10 * power;
}

/** What all charts of a page point at. */
export class Cursor {
  /** @type {Chart[]} */
  charts = [];
  /** Seconds since 1970; null: at nothing. @type {number | null} */
  at = null;

  /** @param {number | null} at */
  point(at) {
    this.at = at;
    for (const chart of this.charts) chart.pointed();
  }
}

/** Points by key. @type {Record<string, number>} */
const BY = { ArrowLeft: -1, ArrowRight: 1, PageUp: -30, PageDown: 30 };

/**
 * @typedef {{field: string, name: string, style?: string, stepped?: boolean}} Line
 * @typedef {{end: number, step: number, [field: string]: any}} Series  of values by field
 * @typedef {{at: number, text: string}} Mark
 */
export class Chart {
  /**
   * @param {{title: string, lines: Line[], format: (value: number | null) => string, cursor: Cursor, least?: number}} options
   *   least: the smallest upper end of the axis
   */
  constructor(options) {
    this.options = options;
    /** @type {Series} */
    this.series = { end: 0, step: 10 };
    /** @type {Mark[]} */
    this.marks = [];
    this.width = 0;
    /** @type {SVGElement | null} */
    this.pointer = null;
    this.drawing = svg("svg", { class: "chart", role: "img", tabindex: 0, "aria-label": options.title });
    this.told = h("p", { class: "told" });
    const legend = h("ul", { class: "legend" }, ...options.lines.map((one) => h("li", {}, swatch(one.style), one.name)));
    this.element = h("figure", {}, h("figcaption", {}, h("h3", {}, options.title), legend), this.drawing, this.told);
    options.cursor.charts.push(this);
    this.drawing.addEventListener("pointermove", (event) => options.cursor.point(this.time(event.offsetX)));
    this.drawing.addEventListener("pointerleave", () => options.cursor.point(null));
    this.drawing.addEventListener("blur", () => options.cursor.point(null));
    this.drawing.addEventListener("keydown", (event) => this.key(event));
    this.watch = new ResizeObserver(() => this.draw());
    this.watch.observe(this.drawing);
  }

  end() {
    this.watch.disconnect();
  }

  /** @param {Series} series @param {Mark[]} marks */
  show(series, marks = []) {
    this.series = series;
    this.marks = marks;
    this.draw();
  }

  get count() {
    return Math.max(...this.options.lines.map((one) => this.values(one).length), 0);
  }

  get begin() {
    return this.series.end - (this.count - 1) * this.series.step;
  }

  /** @param {Line} one @returns {Values} */
  values(one) {
    return this.series[one.field] || [];
  }

  /** Where a time is, in pixels: the newest at the right edge. @param {number} at */
  x(at) {
    const span = Math.max(this.span, this.series.step);
    return LEFT + ((at - (this.series.end - span)) / span) * (this.width - LEFT - RIGHT);
  }

  /** @param {number} x */
  time(x) {
    const span = Math.max(this.span, this.series.step);
    const at = this.series.end - span + ((x - LEFT) / (this.width - LEFT - RIGHT)) * span;
    const step = Math.round((at - this.begin) / this.series.step);
    return this.begin + Math.min(Math.max(step, 0), this.count - 1) * this.series.step;
  }

  get span() {
    return (this.count - 1) * this.series.step;
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const by = BY[event.key];
    const cursor = this.options.cursor;
    if (event.key === "Escape" && cursor.at !== null) event.stopPropagation();
    if (event.key === "Escape") cursor.point(null);
    if (!by || !this.count) return;
    event.preventDefault();
    const from = cursor.at ?? this.series.end + (by > 0 ? 0 : this.series.step);
    cursor.point(Math.min(Math.max(from + by * this.series.step, this.begin), this.series.end));
  }

  draw() {
    this.width = this.drawing.clientWidth;
    const { lines, format, least = 0 } = this.options;
    const knows = (/** @type {Line} */ one) => one.style !== "limit" && known(this.values(one)).length > 0;
    if (!this.width || !this.count || !lines.some(knows)) {
      this.drawing.replaceChildren(svg("text", { x: LEFT, y: HEIGHT / 2 }, "Nothing is known of this hour."));
      this.pointer = null;
      this.pointed();
      return;
    }
    // A limit that is far away would press what matters to the ground: it is drawn once it is near.
    const largest = (/** @type {Line[]} */ chosen) => Math.max(...chosen.flatMap((one) => known(this.values(one))), least);
    const measured = largest(lines.filter((one) => one.style !== "limit"));
    const near = lines.filter((one) => one.style !== "limit" || largest([one]) <= 3 * measured);
    const most = above(largest(near));
    const y = (/** @type {number} */ value) => HEIGHT - BOTTOM - (value / most) * (HEIGHT - TOP - BOTTOM);
    const grid = [0, 0.5, 1].map((share) => svg("g", {}, svg("path", { class: "grid", d: `M${LEFT} ${y(most * share)}H${this.width - RIGHT}` }), svg("text", { x: LEFT - 6, y: y(most * share) + 4, class: "end" }, format(most * share))));
    const paths = near.map((one) => svg("path", { class: `line ${one.style || ""}`, d: line(this.values(one), (index) => this.x(this.begin + index * this.series.step), y, one.stepped) }));
    this.pointer = svg("path", { class: "pointer" });
    const dots = this.marks.filter((mark) => mark.at >= this.begin - this.series.step && mark.at <= this.series.end + this.series.step).map((mark) => svg("path", { class: "mark", d: `M${this.x(mark.at)} ${TOP - 10}l5 9h-10z` }, svg("title", {}, mark.text)));
    this.drawing.replaceChildren(...grid, ...this.times(), ...paths, this.pointer, ...dots);
    this.pointed();
  }

  times() {
    const every = [60, 300, 600, 900, 1800, 3600, 21600, 86400, 172800].find((step) => this.span / step <= Math.max(this.width / 110, 2)) || 604800;
    const found = [];
    for (let at = Math.ceil(this.begin / every) * every; at <= this.series.end; at += every) {
      const text = every >= 86400 ? new Date(at * 1000).toLocaleDateString("en-CA") : new Date(at * 1000).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
      if (this.x(at) > LEFT + 14 && this.x(at) < this.width - 24) found.push(svg("text", { x: this.x(at), y: HEIGHT - 4, class: "middle" }, text));
    }
    return found;
  }

  /** Tells what is where the cursor points, or what is now. */
  pointed() {
    const at = this.options.cursor.at;
    if (at === null || !this.count || at < this.begin || at > this.series.end) {
      this.pointer?.setAttribute("d", "");
      say(this.told, this.count ? `Now: ${this.sentence(this.count - 1)}` : NONE);
      return;
    }
    this.pointer?.setAttribute("d", `M${this.x(at)} ${TOP}V${HEIGHT - BOTTOM}`);
    const near = this.marks.filter((mark) => Math.abs(mark.at - at) <= this.series.step);
    const here = this.sentence(Math.round((at - this.begin) / this.series.step));
    say(this.told, [`${clock(at)}: ${here}`, ...near.map((mark) => mark.text)].join(". "));
  }

  /** What each line has at a point. @param {number} index */
  sentence(index) {
    return this.options.lines.map((one) => `${one.name} ${this.options.format(this.values(one)[index] ?? null)}`).join(", ");
  }
}

function swatch(style = "") {
  return svg("svg", { viewBox: "0 0 20 8", width: 20, height: 8, "aria-hidden": "true", class: "chart" }, svg("path", { class: `line ${style}`, d: "M0 4H20" }));
}
