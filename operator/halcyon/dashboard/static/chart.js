// Charts over time. uPlot draws and tells where the pointer is; here is what it has not: marks, the keyboard, words for what is
// pointed at, and one cursor and one stretch of time for all charts of a page. Colours, widths and dashes are the style sheet's.

import { h, say, svg } from "./dom.js";
import { clock, NONE } from "./format.js";
import uPlot from "./uplot/uPlot.esm.js";

const HEIGHT = 150;
const LEFT = 46;
const BOTTOM = 22;
const MARKS = 14;
const FONT = "11px system-ui, sans-serif";
const DAY = 86400;
/** Seconds between the times of the axis; the first that leaves room for them is taken. */
const EVERY = [1, 2, 5, 10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, DAY, 2 * DAY, 7 * DAY];
/** Points that a stretch has at least: with fewer there is no line. */
const LEAST = 6;

/** @typedef {import("../documents.js").Values} Values */
/** @typedef {[from: number, to: number]} Stretch  seconds since 1970 */

/** What all charts of a page point at, and the stretch of time that they show. */
export class Cursor {
  /** @type {Chart[]} */
  charts = [];
  /** Seconds since 1970; null: at nothing. @type {number | null} */
  at = null;
  /** Null: all that is known. @type {Stretch | null} */
  stretch = null;
  whole = h("button", { type: "button", hidden: true, onclick: () => this.show(null) }, "Show all of it");

  /** @param {number | null} at @param {Chart | null} by who has drawn its own cursor already */
  point(at, by = null) {
    this.at = at;
    for (const chart of this.charts) chart.pointed(chart !== by);
  }

  /** @param {Stretch | null} stretch */
  show(stretch) {
    this.stretch = stretch;
    this.whole.hidden = stretch === null;
    for (const chart of this.charts) chart.draw();
  }
}

/** Points by key. @type {Record<string, number>} */
const BY = { ArrowLeft: -1, ArrowRight: 1, PageUp: -30, PageDown: 30 };
/** What becomes of the stretch by key. @type {Record<string, number>} */
const CLOSER = { "+": 0.5, "=": 0.5, "-": 2 };

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
    /** Made once there is something to draw and room for it. @type {uPlot | null} */
    this.plot = null;
    this.isDrawing = false;
    this.swatches = options.lines.map((one) => svg("path", { class: `line ${one.style || ""}`, d: "M0 4H20" }));
    this.dots = h("div", { class: "marks" });
    this.nothing = h("p", { class: "empty" }, "Nothing is known of this hour.");
    this.drawing = h("div", { class: "chart", role: "img", tabindex: 0, "aria-label": options.title, onkeydown: (/** @type {KeyboardEvent} */ event) => this.key(event), onblur: () => options.cursor.point(null) }, this.nothing);
    this.told = h("p", { class: "told" });
    const legend = h("ul", { class: "legend" }, ...options.lines.map((one, index) => h("li", {}, svg("svg", { viewBox: "0 0 20 8", width: 20, height: 8, "aria-hidden": "true" }, this.swatches[index]), one.name)));
    this.element = h("figure", {}, h("figcaption", {}, h("h3", {}, options.title), legend), this.drawing, this.told);
    options.cursor.charts.push(this);
    this.repaint = () => this.plot?.redraw(false);
    addEventListener("themechange", this.repaint);
    this.watch = new ResizeObserver(() => this.draw());
    this.watch.observe(this.drawing);
  }

  end() {
    this.watch.disconnect();
    removeEventListener("themechange", this.repaint);
    this.plot?.destroy();
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

  /** What is shown: all that is known, where nothing else was chosen or what was is no longer kept. @returns {Stretch} */
  get stretch() {
    const { stretch } = this.options.cursor;
    return stretch && stretch[1] > this.begin ? stretch : [this.begin, Math.max(this.series.end, this.begin + this.series.step)];
  }

  /** @param {Line} one @returns {Values} */
  values(one) {
    return this.series[one.field] || [];
  }

  /** The largest value of a line; 0 where none is known. @param {Line} one */
  largest(one) {
    return Math.max(...this.values(one).map((value) => value ?? 0), 0);
  }

  draw() {
    const width = this.drawing.clientWidth;
    if (!width) return;
    const { lines, least = 0 } = this.options;
    const measured = lines.filter((one) => one.style !== "limit");
    const isKnown = measured.some((one) => this.values(one).some((value) => value !== null && value !== undefined));
    this.nothing.hidden = isKnown;
    if (this.plot) this.plot.root.hidden = !isKnown;
    if (isKnown) {
      this.plot ??= this.made(width);
      const plot = this.plot;
      // A limit that is far away would press what matters to the ground: it is drawn once it is near.
      const near = Math.max(...measured.map((one) => this.largest(one)), least) * 3;
      const { begin, count } = this;
      const times = Array.from({ length: count }, (_, index) => begin + index * this.series.step);
      const rows = lines.map((one) => Array.from({ length: count }, (_, index) => this.values(one)[index] ?? null));
      // What is pointed at stays the same time, which new points move to the left: uPlot would stay at the pixel.
      this.isDrawing = true;
      plot.batch(() => {
        if (plot.width !== width) plot.setSize({ width, height: HEIGHT });
        plot.setData([times, ...rows]);
        lines.forEach((one, index) => plot.setSeries(index + 1, { show: one.style !== "limit" || this.largest(one) <= near }));
      });
      this.isDrawing = false;
    }
    this.pointed();
  }

  /** @param {number} width in pixels */
  made(width) {
    const { lines, format, least = 0, cursor } = this.options;
    const colour = (/** @type {"color" | "borderTopColor"} */ name) => () => getComputedStyle(this.drawing)[name];
    const axis = { font: FONT, stroke: colour("color"), ticks: { show: false } };
    const plot = new uPlot(
      {
        width,
        height: HEIGHT,
        padding: [MARKS, 12, 0, 0],
        legend: { show: false },
        scales: {
          x: { range: () => this.stretch },
          y: { range: (_, __, most) => [0, above(Math.max(most ?? 0, least))] },
        },
        axes: [
          { ...axis, size: BOTTOM, gap: 4, space: 64, incrs: EVERY, grid: { show: false }, values: (_, times, __, ___, every) => times.map((at) => moment(at, every)) },
          { ...axis, size: LEFT, gap: 6, grid: { stroke: colour("borderTopColor"), width: 1 }, splits: (_, __, from, to) => [from, (from + to) / 2, to], values: (_, marks) => marks.map((mark) => format(mark)) },
        ],
        series: [{}, ...lines.map((one, index) => drawn(one, this.swatches[index]))],
        cursor: { y: false, drag: { setScale: false, dist: 4 }, bind: { dblclick: () => () => (cursor.show(null), null) } },
        hooks: {
          draw: [() => this.mark()],
          setCursor: [(at) => !this.isDrawing && cursor.point(typeof at.cursor.idx === "number" ? at.data[0][at.cursor.idx] : null, this)],
          setSelect: [(at) => this.chosen(at)],
        },
      },
      undefined,
      this.drawing,
    );
    plot.root.append(this.dots);
    return plot;
  }

  /** A stretch was dragged over: everything shows it. @param {uPlot} plot */
  chosen(plot) {
    const { left, width } = plot.select;
    if (!width) return;
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.look(plot.posToVal(left, "x"), plot.posToVal(left + width, "x"));
  }

  /** Shows these seconds, as far as they are known. @param {number} from @param {number} to */
  look(from, to) {
    const all = this.series.end - this.begin;
    const long = Math.min(Math.max(to - from, LEAST * this.series.step), all);
    const first = Math.min(Math.max((from + to - long) / 2, this.begin), this.series.end - long);
    this.options.cursor.show(long < all ? [first, first + long] : null);
  }

  /** Puts the marks where their times are. */
  mark() {
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
      if (cursor.at !== null || cursor.stretch) event.stopPropagation();
      if (cursor.stretch) cursor.show(null);
      cursor.point(null);
    }
    const [by, closer] = [BY[event.key], CLOSER[event.key]];
    if ((!by && !closer) || !this.count || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const [first, last] = cursor.stretch ?? [this.begin, this.series.end];
    if (closer) {
      const middle = Math.min(Math.max(cursor.at ?? last, first), last);
      const half = ((last - first) * closer) / 2;
      return this.look(middle - half, middle + half);
    }
    const from = cursor.at ?? last + (by > 0 ? 0 : this.series.step);
    const at = Math.min(Math.max(from + by * this.series.step, this.begin), this.series.end);
    // The stretch follows whoever goes beyond it.
    const beyond = at < first ? at - first : Math.max(at - last, 0);
    if (beyond) cursor.show([first + beyond, last + beyond]);
    cursor.point(at);
  }

  /** Tells what is where the cursor points, or what is now. */
  pointed(isMoved = true) {
    const { at } = this.options.cursor;
    const isThere = at !== null && this.count > 0 && at >= this.begin && at <= this.series.end;
    if (isMoved && this.plot) this.plot.setCursor(isThere ? { left: this.plot.valToPos(at, "x"), top: 0 } : { left: -10, top: -10 }, false);
    if (!isThere) {
      say(this.told, this.count ? `Now: ${this.sentence(this.count - 1)}` : NONE);
      return;
    }
    const near = this.marks.filter((mark) => Math.abs(mark.at - at) <= this.series.step);
    const here = this.sentence(Math.round((at - this.begin) / this.series.step));
    say(this.told, [`${clock(at)}: ${here}`, ...near.map((mark) => mark.text)].join(". "));
  }

  /** What each line has at a point. @param {number} index */
  sentence(index) {
    return this.options.lines.map((one) => `${one.name} ${this.options.format(this.values(one)[index] ?? null)}`).join(", ");
  }
}

/** A line as uPlot has it, in the looks of its swatch. @param {Line} one @param {SVGElement} swatch @returns {uPlot.Series} */
function drawn(one, swatch) {
  const style = getComputedStyle(swatch);
  return {
    stroke: () => style.stroke,
    ...(style.fill !== "none" && { fill: () => style.fill }),
    width: parseFloat(style.strokeWidth),
    dash: style.strokeDasharray === "none" ? [] : style.strokeDasharray.split(",").map(parseFloat),
    paths: one.stepped ? uPlot.paths.stepped?.({ align: 1 }) : uPlot.paths.linear?.(),
    // A value between two gaps is no line: it is a dot.
    points: { show: true, size: 3, filter: (plot, index) => [...plot.data[index]].flatMap((value, at, all) => (value !== null && (all[at - 1] ?? null) === null && (all[at + 1] ?? null) === null ? [at] : [])) },
  };
}

/** The least round number that is not below `value`. @param {number} value */
function above(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 1.5, 2, 3, 4, 5, 6, 8].map((factor) => factor * power).find((round) => round >= value * 0.9999) ?? 10 * power;
}

/** A time as the axis has it. @param {number} at in seconds @param {number} every seconds from one to the next */
function moment(at, every) {
  const time = new Date(at * 1000);
  if (every >= DAY) return time.toLocaleDateString("en-CA");
  return time.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", ...(every < 60 && { second: "2-digit" }) });
}
