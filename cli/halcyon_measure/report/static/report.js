// Charts of a report. Each is drawn from the table in its figure. uPlot, which is above in this module, draws the lines and tracks the
// pointer; this script adds the legend, the keyboard and a text readout. Colours and dashes come from the style sheet.

const HEIGHT = 230;
const PRINT_WIDTH = 640;
const FONT = "12px system-ui, sans-serif";
const SVG = "http://www.w3.org/2000/svg";
const HINT = "Arrow keys move along the lines; + and - zoom, Escape shows all.";
/** Number of points by which a key moves the cursor. */
const MOVES = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity };
/** Factor by which a key changes the range. */
const ZOOMS = { "+": 0.5, "=": 0.5, "-": 2 };
const SHARES = [0.5, 0.9, 0.99, 0.999];

const nines = (share) => -Math.log10(1 - share);
/** Positions on the horizontal axis. */
const PLACES = { linear: (value) => value, time: (value) => value, log: (value) => Math.log10(value), nines };

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** Returns a number with about three digits. */
function text(value) {
  if (value === null || value === undefined) return "-";
  const size = Math.abs(value);
  if (Number.isInteger(value) || size >= 1000) return value.toFixed(0);
  if (size < 1) return String(Number(value.toPrecision(size < 0.01 ? 2 : 3)));
  return value.toFixed(size < 10 ? 2 : size < 100 ? 1 : 0);
}

/** Returns the label of an axis: as few digits as tell its value. */
const short = (value) => String(Number(value.toPrecision(4)));

class Chart {
  constructor(figure) {
    this.figure = figure;
    this.drawing = figure.querySelector(".chart");
    this.data = figure.dataset;
    this.read(figure.querySelector("table"));
    this.swatches = this.lines.map((_, index) => {
      const path = document.createElementNS(SVG, "path");
      path.setAttribute("class", `line l${index + 1}`);
      path.setAttribute("d", "M0 5H24");
      return path;
    });
    this.legend = element("ul", { class: "legend" }, ...this.lines.map((line, index) => element("li", {}, this.key(line, index))));
    this.readout = element("p", { class: "readout", "aria-live": "polite" });
    this.drawing.before(this.legend);
    this.drawing.after(this.readout);
    for (const [name, value] of Object.entries({ role: "img", tabindex: "0", "aria-label": `Chart: ${this.drawing.dataset.title}. ${HINT}` })) this.drawing.setAttribute(name, value);
    this.drawing.addEventListener("keydown", (event) => this.press(event));
    this.drawing.addEventListener("focus", () => this.tell(this.at));
    this.drawing.addEventListener("blur", () => this.point(null));
    this.range = null;
    this.at = null;
    new ResizeObserver(() => this.draw()).observe(this.drawing);
    this.draw();
  }

  /** Reads places, labels and values from the table. */
  read(table) {
    const head = [...table.tHead.rows[0].cells];
    const rows = [...table.tBodies[0].rows];
    const place = PLACES[this.data.x];
    this.places = rows.map((row) => place(Number(row.cells[0].dataset.v)));
    this.labels = rows.map((row) => row.cells[0].textContent);
    this.lines = head.flatMap((cell, column) => {
      if (!("line" in cell.dataset)) return [];
      const values = rows.map((row) => (row.cells[column].textContent === "-" ? null : Number(row.cells[column].textContent)));
      return [{ name: cell.dataset.line, values, isShown: true }];
    });
    const all = this.lines.flatMap((line) => line.values.filter((value) => value !== null));
    this.least = Math.min(...all);
    // A scale of logarithms is for what spans them; else it only hides the difference.
    this.isLog = "log" in this.data && this.least > 0 && Math.max(...all) / this.least > 20;
  }

  /** Returns the button that shows and hides a line. */
  key(line, index) {
    const picture = document.createElementNS(SVG, "svg");
    for (const [name, value] of Object.entries({ viewBox: "0 0 24 10", width: "24", height: "10", "aria-hidden": "true" })) picture.setAttribute(name, value);
    picture.append(this.swatches[index]);
    const button = element("button", { type: "button", "aria-pressed": "true" }, picture, line.name);
    button.addEventListener("click", () => {
      line.isShown = !line.isShown;
      button.setAttribute("aria-pressed", String(line.isShown));
      this.plot?.setSeries(index + 1, { show: line.isShown });
    });
    return button;
  }

  get whole() {
    const [first, last] = [Math.min(...this.places), Math.max(...this.places)];
    return first === last ? [first - 1, last + 1] : [first, last];
  }

  draw(width = this.drawing.parentElement.clientWidth) {
    if (!width) return;
    if (this.plot) this.plot.setSize({ width, height: HEIGHT });
    else this.plot = this.create(width);
  }

  create(width) {
    const colour = (name) => () => getComputedStyle(this.drawing)[name];
    const axis = { font: FONT, stroke: colour("color"), ticks: { show: false } };
    const unit = this.data.unit;
    return new uPlot(
      {
        width,
        height: HEIGHT,
        padding: [12, 26, 0, 0],
        legend: { show: false },
        scales: {
          x: { time: false, range: () => this.range ?? this.whole },
          y: { distr: this.isLog ? 3 : 1, range: (_, least, most) => (this.isLog ? [round(least ?? 1, -1), round(most ?? 10, 1)] : [0, step(most || 1) * Math.ceil((most || 1) / step(most || 1) - 1e-9)]) },
        },
        axes: [
          { ...axis, size: 26, gap: 6, label: this.data.xName, labelFont: FONT, labelSize: 16, labelGap: 0, grid: { show: false }, ...this.ticks() },
          { ...axis, size: 46, gap: 6, label: unit + (this.isLog ? ", logarithmic" : ""), labelFont: FONT, labelSize: 18, labelGap: 0, grid: { stroke: colour("borderTopColor"), width: 1 }, splits: (_, __, from, to) => (this.isLog ? decades(from, to) : evenly(from, to)), filter: (_, splits) => splits, values: (_, splits) => splits.map(short) },
        ],
        series: [{}, ...this.lines.map((_, index) => this.style(index))],
        cursor: { y: false, points: { size: 7 }, drag: { setScale: false, dist: 4 }, bind: { dblclick: () => () => (this.zoom(null), null) } },
        hooks: {
          setCursor: [(plot) => this.tell(plot.cursor.idx ?? null)],
          setSelect: [(plot) => this.select(plot)],
        },
      },
      [this.places, ...this.lines.map((line) => line.values)],
      this.drawing,
    );
  }

  /** Returns the ticks of the horizontal axis. */
  ticks() {
    if (this.data.x === "nines") return { splits: () => SHARES.map(nines), values: (_, places) => places.map((_, index) => `${short(100 * SHARES[index])} %`) };
    if (this.data.x === "log") {
      const known = [...new Set(this.places)];
      const every = Math.ceil(known.length / 8);
      const kept = known.filter((_, index) => index % every === 0);
      return { splits: () => kept, values: (_, places) => places.map((place) => short(10 ** place)) };
    }
    return { space: 56, values: (_, places) => places.map(short) };
  }

  style(index) {
    const style = getComputedStyle(this.swatches[index]);
    const stepped = "stepped" in this.data;
    return {
      stroke: () => getComputedStyle(this.swatches[index]).stroke,
      width: parseFloat(style.strokeWidth),
      spanGaps: "spansGaps" in this.data,
      dash: style.strokeDasharray === "none" ? [] : style.strokeDasharray.split(",").map(parseFloat),
      paths: stepped ? uPlot.paths.stepped({ align: 1 }) : uPlot.paths.linear(),
      points: this.data.x === "nines" ? { show: false } : { show: true, size: 5, filter: (plot, line) => this.dots(plot.data[line]) },
    };
  }

  /** Returns the points that are drawn as dots: all if there are few, else those without neighbours. */
  dots(values) {
    const alone = (index) => (values[index - 1] ?? null) === null && (values[index + 1] ?? null) === null;
    return [...values].flatMap((value, index) => (value !== null && (("spansGaps" in this.data) || alone(index)) ? [index] : []));
  }

  select(plot) {
    const { left, width } = plot.select;
    if (!width) return;
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.zoom([plot.posToVal(left, "x"), plot.posToVal(left + width, "x")]);
  }

  /** Shows a range of the axis; everything for null. */
  zoom(range) {
    const [first, last] = this.whole;
    const clipped = range && [Math.max(range[0], first), Math.min(range[1], last)];
    this.range = clipped && clipped[1] - clipped[0] < last - first && clipped[1] - clipped[0] > (last - first) / 1000 ? clipped : null;
    this.plot.setData(this.plot.data);
    this.point(this.at);
  }

  press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !this.plot) return;
    const [move, factor] = [MOVES[event.key], ZOOMS[event.key]];
    if (event.key === "Escape") {
      this.zoom(null);
      return this.point(null);
    }
    if (!move && !factor) return;
    event.preventDefault();
    const last = this.places.length - 1;
    if (move) return this.point(Math.min(Math.max((this.at ?? (move > 0 ? -1 : last + 1)) + move, 0), last));
    const [from, to] = this.range ?? this.whole;
    const middle = this.at === null ? (from + to) / 2 : this.places[this.at];
    this.zoom([middle - ((to - from) * factor) / 2, middle + ((to - from) * factor) / 2]);
  }

  /** Shows the values at a point; for null, the hint if the keyboard is here. */
  point(at) {
    this.at = at;
    if (this.plot) this.plot.setCursor(at === null ? { left: -10, top: -10 } : { left: this.plot.valToPos(this.places[at], "x"), top: 10 }, false);
    this.tell(at);
  }

  tell(at) {
    this.at = at;
    const unit = this.data.unit ? ` ${this.data.unit}` : "";
    const hint = document.activeElement === this.drawing ? HINT : "";
    const said = at === null ? hint : `${this.labels[at]}${this.data.x === "time" ? " s" : ""}: ${this.lines.map((line) => `${line.name} ${text(line.values[at])}${unit}`).join(", ")}`;
    if (this.readout.textContent !== said) this.readout.textContent = said;
  }
}

/** Returns the nearest round number above (`side` 1) or below (-1). */
function round(value, side) {
  if (value <= 0) return side;
  const power = 10 ** Math.floor(Math.log10(value));
  const steps = [1, 1.5, 2, 3, 4, 5, 6, 8, 10].map((factor) => factor * power);
  return side > 0 ? steps.find((step) => step >= value * 0.9999) : steps.findLast((step) => step <= value * 1.0001);
}

/** Returns the distance of an axis' ticks, of which up to five reach a value. @param {number} most */
function step(most) {
  const power = 10 ** Math.floor(Math.log10(most / 5));
  return [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((one) => one * 5 >= most * 0.9999);
}

const evenly = (from, to) => Array.from({ length: Math.round((to - from) / step(to)) + 1 }, (_, index) => from + index * step(to));

/** Returns 1, 2 and 5 times the powers of ten in a range; powers alone if it is wide. */
function decades(from, to) {
  const factors = to / from > 1000 ? [1] : [1, 2, 5];
  const found = [];
  for (let power = Math.floor(Math.log10(from)); 10 ** power <= to; power += 1) found.push(...factors.map((factor) => Number((factor * 10 ** power).toPrecision(3))));
  return found.filter((value) => value >= from && value <= to);
}

/** @type {Chart[]} */
const charts = [];
// After the first paint: the text of a long report is there before its charts.
if (uPlot) requestAnimationFrame(() => setTimeout(() => charts.push(...[...document.querySelectorAll("figure.plot")].map((figure) => new Chart(figure)))));
const root = document.documentElement;
const repaint = () => charts.forEach((chart) => chart.plot?.redraw(false));

const theme = document.getElementById("theme");
const darkness = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : darkness.matches);
function showTheme() {
  theme.textContent = isDark() ? "Light" : "Dark";
  repaint();
}
theme.hidden = false;
theme.addEventListener("click", () => {
  root.dataset.theme = isDark() ? "light" : "dark";
  showTheme();
});
darkness.addEventListener("change", showTheme);
showTheme();

// Paper is light and narrow.
let screenTheme;
addEventListener("beforeprint", () => {
  screenTheme = root.dataset.theme;
  root.dataset.theme = "light";
  charts.forEach((chart) => chart.draw(PRINT_WIDTH));
  repaint();
});
addEventListener("afterprint", () => {
  if (screenTheme === undefined) delete root.dataset.theme;
  else root.dataset.theme = screenTheme;
  charts.forEach((chart) => chart.draw());
  repaint();
});

/** Returns the JSON of the results. */
async function results() {
  const data = document.getElementById("data");
  if (data.dataset.encoding === "plain") return data.textContent;
  const bytes = Uint8Array.from(atob(data.textContent), (char) => char.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).text();
}
const save = document.getElementById("save");
save.hidden = false;
save.addEventListener("click", async () => {
  const found = JSON.parse(await results());
  const one = found.length === 1 ? found[0] : { name: "results.json", document: found.map((each) => each.document) };
  const link = element("a", { href: URL.createObjectURL(new Blob([JSON.stringify(one.document, null, 2)], { type: "application/json" })), download: one.name });
  link.click();
  URL.revokeObjectURL(link.href);
});
