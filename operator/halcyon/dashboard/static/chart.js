// Charts over time. uPlot draws them and tracks the pointer. This module adds marks, keyboard control, a text readout, and a cursor and
// time range that all charts of a page share. Colours, widths and dashes come from the style sheet.

import { h, setText, svg } from "./dom.js";
import { clock, NONE } from "./format.js";
import uPlot from "./uplot/uPlot.esm.js";

const HEIGHT = 150;
const LEFT = 46;
/** Width of a character of the axes' labels, in pixels. */
const CHARACTER = 6.4;
const BOTTOM = 22;
const MARKS = 14;
const FONT = "11px system-ui, sans-serif";
const DAY = 86400;
/** Possible seconds between the ticks of the time axis; the first that leaves enough space is used. */
const TICK_STEPS = [1, 2, 5, 10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, DAY, 2 * DAY, 7 * DAY];
/** Minimum number of points in a time range: with fewer there is no line. */
const MIN_POINTS = 6;

/** @typedef {import("../documents.js").Values} Values */
/** @typedef {[from: number, to: number]} TimeRange  seconds since 1970 */

/** The cursor that all charts of a page share, and the time range that they show. */
export class Cursor {
  /** @type {Chart[]} */
  charts = [];
  /** Seconds since 1970; null: no position. @type {number | null} */
  at = null;
  /** Null: everything that is known. @type {TimeRange | null} */
  range = null;
  zoomOut = h("button", { type: "button", hidden: true, onclick: () => this.show(null) }, "Zoom out");

  /** @param {number | null} at @param {Chart | null} by the chart that has drawn its own cursor already */
  point(at, by = null) {
    this.at = at;
    for (const chart of this.charts) chart.showCursor(chart !== by);
  }

  /** @param {TimeRange | null} range */
  show(range) {
    this.range = range;
    this.zoomOut.hidden = range === null;
    for (const chart of this.charts) chart.draw();
  }
}

/** Number of points by which a key moves the cursor. @type {Record<string, number>} */
const MOVES = { ArrowLeft: -1, ArrowRight: 1, PageUp: -30, PageDown: 30 };
/** Factor by which a key changes the time range. @type {Record<string, number>} */
const ZOOMS = { "+": 0.5, "=": 0.5, "-": 2 };

/**
 * @typedef {{field: string, name: string, style?: string, stepped?: boolean}} Line
 * @typedef {{end: number, step: number, [field: string]: any}} Series  of values by field
 * @typedef {{at: number, text: string}} Mark
 */
export class Chart {
  /**
   * @param {{title: string, lines: Line[], format: (value: number | null) => string, cursor: Cursor, least?: number, integers?: boolean}} options
   *   least: the smallest upper end of the axis; integers: only whole numbers are labelled
   */
  constructor(options) {
    this.options = options;
    /** @type {Series} */
    this.series = { end: 0, step: 10 };
    /** @type {Mark[]} */
    this.marks = [];
    /** Created once there are values to draw and space for them. @type {uPlot | null} */
    this.plot = null;
    this.isDrawing = false;
    this.swatches = options.lines.map((line) => svg("path", { class: `line ${line.style || ""}`, d: "M0 4H20" }));
    this.dots = h("div", { class: "marks" });
    this.placeholder = h("p", { class: "empty" }, "There are no values in this time range.");
    this.drawing = h("div", { class: "chart", role: "img", tabindex: 0, "aria-label": options.title, onkeydown: (/** @type {KeyboardEvent} */ event) => this.key(event), onblur: () => options.cursor.point(null) }, this.placeholder);
    this.readout = h("p", { class: "readout" });
    this.names = options.lines.map((line, index) => h("li", {}, svg("svg", { viewBox: "0 0 20 8", width: 20, height: 8, "aria-hidden": "true" }, this.swatches[index]), line.name));
    const legend = h("ul", { class: "legend" }, ...this.names);
    this.element = h("figure", {}, h("figcaption", {}, h("h3", {}, options.title), legend), this.drawing, this.readout);
    options.cursor.charts.push(this);
    this.repaint = () => this.plot?.redraw(false);
    addEventListener("themechange", this.repaint);
    this.resizes = new ResizeObserver(() => this.draw());
    this.resizes.observe(this.drawing);
  }

  end() {
    this.resizes.disconnect();
    removeEventListener("themechange", this.repaint);
    this.plot?.destroy();
  }

  /** @param {Series} series @param {Mark[]} marks */
  show(series, marks = []) {
    this.series = series;
    this.marks = marks;
    this.options.lines.forEach((line, index) => (this.names[index].hidden = this.isUnset(line)));
    this.draw();
  }

  get count() {
    return Math.max(...this.options.lines.map((line) => this.values(line).length), 0);
  }

  get begin() {
    return this.series.end - (this.count - 1) * this.series.step;
  }

  /** The time range that is shown: everything that is known, unless another range was selected whose points still exist. @returns {TimeRange} */
  get range() {
    const { range } = this.options.cursor;
    return range && range[1] > this.begin ? range : [this.begin, Math.max(this.series.end, this.begin + this.series.step)];
  }

  /** @param {Line} line @returns {Values} */
  values(line) {
    return this.series[line.field] || [];
  }

  /** Returns true for a limit that is not set: neither the legend nor the readout names it. @param {Line} line */
  isUnset(line) {
    return line.style === "limit" && !this.values(line).some((value) => value !== null && value !== undefined);
  }

  /** Returns the largest value of a line; 0 if none is known. @param {Line} line */
  largest(line) {
    return Math.max(...this.values(line).map((value) => value ?? 0), 0);
  }

  draw() {
    const width = this.drawing.clientWidth;
    if (!width) return;
    const { lines, least = 0 } = this.options;
    const measured = lines.filter((line) => line.style !== "limit");
    const isKnown = measured.some((line) => this.values(line).some((value) => value !== null && value !== undefined));
    this.placeholder.hidden = isKnown;
    if (this.plot) this.plot.root.hidden = !isKnown;
    if (isKnown) {
      this.plot ??= this.createPlot(width);
      const plot = this.plot;
      // A distant limit would flatten the measured lines, so a limit is drawn only once they come near it.
      const near = Math.max(...measured.map((line) => this.largest(line)), least) * 3;
      const { begin, count } = this;
      const times = Array.from({ length: count }, (_, index) => begin + index * this.series.step);
      const rows = lines.map((line) => Array.from({ length: count }, (_, index) => this.values(line)[index] ?? null));
      // The cursor stays at its time, which new points move to the left; uPlot would keep it at its pixel.
      this.isDrawing = true;
      plot.batch(() => {
        if (plot.width !== width) plot.setSize({ width, height: HEIGHT });
        plot.setData([times, ...rows]);
        lines.forEach((line, index) => plot.setSeries(index + 1, { show: line.style !== "limit" || this.largest(line) <= near }));
      });
      this.isDrawing = false;
    }
    this.showCursor();
  }

  /** @param {number} width in pixels */
  createPlot(width) {
    const { lines, format, least = 0, integers = false, cursor } = this.options;
    const colour = (/** @type {"color" | "borderTopColor"} */ name) => () => getComputedStyle(this.drawing)[name];
    const axis = { font: FONT, stroke: colour("color"), ticks: { show: false } };
    const plot = new uPlot(
      {
        width,
        height: HEIGHT,
        padding: [MARKS, 12, 0, 0],
        legend: { show: false },
        scales: {
          x: { range: () => this.range },
          y: { range: (_, __, largest) => [0, roundUp(Math.max(largest ?? 0, least))] },
        },
        axes: [
          { ...axis, size: BOTTOM, gap: 4, space: 64, incrs: TICK_STEPS, grid: { show: false }, values: (_, times, __, ___, step) => times.map((at) => timeLabel(at, step)) },
          { ...axis, size: (_, labels) => Math.max(LEFT, ...(labels ?? []).map((label) => label.length * CHARACTER + 8)), gap: 6, grid: { stroke: colour("borderTopColor"), width: 1 }, splits: (_, __, from, to) => splits(from, to, integers), values: (_, marks) => marks.map((mark) => format(mark)) },
        ],
        series: [{}, ...lines.map((line, index) => seriesOptions(line, this.swatches[index]))],
        cursor: { y: false, drag: { setScale: false, dist: 4 }, bind: { dblclick: () => () => (cursor.show(null), null) } },
        hooks: {
          draw: [() => this.placeMarks()],
          setCursor: [(plot) => !this.isDrawing && cursor.point(typeof plot.cursor.idx === "number" ? plot.data[0][plot.cursor.idx] : null, this)],
          setSelect: [(plot) => this.select(plot)],
        },
      },
      undefined,
      this.drawing,
    );
    plot.root.append(this.dots);
    return plot;
  }

  /** Shows the time range that was dragged over in all charts. @param {uPlot} plot */
  select(plot) {
    const { left, width } = plot.select;
    if (!width) return;
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.zoom(plot.posToVal(left, "x"), plot.posToVal(left + width, "x"));
  }

  /** Shows a time range, as far as its points exist. @param {number} from @param {number} to */
  zoom(from, to) {
    const all = this.series.end - this.begin;
    const length = Math.min(Math.max(to - from, MIN_POINTS * this.series.step), all);
    const first = Math.min(Math.max((from + to - length) / 2, this.begin), this.series.end - length);
    this.options.cursor.show(length < all ? [first, first + length] : null);
  }

  /** Places the marks at their times. */
  placeMarks() {
    const plot = this.plot;
    const { min, max } = plot?.scales.x ?? {};
    if (!plot || min === undefined || max === undefined) return;
    const near = this.marks.filter((mark) => mark.at >= min - this.series.step && mark.at <= max + this.series.step);
    const dots = near.map((mark) => {
      const dot = h("span", { class: "mark", title: mark.text });
      dot.style.left = `${plot.over.offsetLeft + plot.valToPos(mark.at, "x")}px`;
      return dot;
    });
    this.dots.replaceChildren(...dots);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const { cursor } = this.options;
    if (event.key === "Escape") {
      if (cursor.at !== null || cursor.range) event.stopPropagation();
      if (cursor.range) cursor.show(null);
      cursor.point(null);
    }
    const [move, zoom] = [MOVES[event.key], ZOOMS[event.key]];
    if ((!move && !zoom) || !this.count || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const [first, last] = cursor.range ?? [this.begin, this.series.end];
    if (zoom) {
      const middle = Math.min(Math.max(cursor.at ?? last, first), last);
      const half = ((last - first) * zoom) / 2;
      return this.zoom(middle - half, middle + half);
    }
    const from = cursor.at ?? last + (move > 0 ? 0 : this.series.step);
    const at = Math.min(Math.max(from + move * this.series.step, this.begin), this.series.end);
    // The time range follows a cursor that leaves it.
    const beyond = at < first ? at - first : Math.max(at - last, 0);
    if (beyond) cursor.show([first + beyond, last + beyond]);
    cursor.point(at);
  }

  /** Draws the cursor, and shows the values at its time, or the newest ones. */
  showCursor(isMoved = true) {
    const { at } = this.options.cursor;
    const isInside = at !== null && this.count > 0 && at >= this.begin && at <= this.series.end;
    if (isMoved && this.plot) this.plot.setCursor(isInside ? { left: this.plot.valToPos(at, "x"), top: 0 } : { left: -10, top: -10 }, false);
    if (!isInside) {
      setText(this.readout, this.count ? `Newest point: ${this.describe(this.count - 1)}` : NONE);
      return;
    }
    const near = this.marks.filter((mark) => Math.abs(mark.at - at) <= this.series.step);
    const values = this.describe(Math.round((at - this.begin) / this.series.step));
    setText(this.readout, [`${clock(at)}: ${values}`, ...near.map((mark) => mark.text)].join(". "));
  }

  /** Returns the value of each line at a point, as text. @param {number} index */
  describe(index) {
    return this.options.lines.filter((line) => !this.isUnset(line)).map((line) => `${line.name} ${this.options.format(this.values(line)[index] ?? null)}`).join(", ");
  }
}

/** Returns uPlot's options of a line, with the style of its swatch. @param {Line} line @param {SVGElement} swatch @returns {uPlot.Series} */
function seriesOptions(line, swatch) {
  const style = getComputedStyle(swatch);
  return {
    stroke: () => style.stroke,
    ...(style.fill !== "none" && { fill: () => style.fill }),
    width: parseFloat(style.strokeWidth),
    dash: style.strokeDasharray === "none" ? [] : style.strokeDasharray.split(",").map(parseFloat),
    paths: line.stepped ? uPlot.paths.stepped?.({ align: 1 }) : uPlot.paths.linear?.(),
    // A value between two gaps has no line, so it is drawn as a dot.
    points: { show: true, size: 3, filter: (plot, index) => [...plot.data[index]].flatMap((value, at, all) => (value !== null && (all[at - 1] ?? null) === null && (all[at + 1] ?? null) === null ? [at] : [])) },
  };
}

/** Highest values of an axis between 1 and 10, and in how many equal parts their labels are round. */
const ROUND = [[1, 5], [1.5, 3], [2, 4], [3, 3], [4, 4], [5, 5], [6, 3], [8, 4], [10, 5]];

/** Returns the values at which the axis has labels, which are round. @param {number} from @param {number} to @param {boolean} integers */
function splits(from, to, integers) {
  const factor = (to - from) / 10 ** Math.floor(Math.log10(to - from) + 1e-9);
  const parts = ROUND.find(([round]) => round >= factor * 0.9999)?.[1] ?? 4;
  const step = integers ? Math.max(Math.ceil((to - from) / 4), 1) : (to - from) / parts;
  return Array.from({ length: Math.floor((to - from) / step + 1e-9) + 1 }, (_, index) => from + index * step);
}

/** Returns the smallest round number that is not below `value`. @param {number} value */
function roundUp(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return ROUND.map(([factor]) => factor * power).find((round) => round >= value * 0.9999) ?? 10 * power;
}

/** Returns the label of a time on the axis. @param {number} at in seconds @param {number} step seconds between two labels */
function timeLabel(at, step) {
  const time = new Date(at * 1000);
  if (step >= DAY) return time.toLocaleDateString("en-CA");
  return time.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", ...(step < 60 && { second: "2-digit" }) });
}
