// Rows of the fleet's table that exist as elements. Each animation frame creates only a few, the visible ones first, so that no frame takes long.

/** Maximum number of rows that are created in one frame. */
const ROWS_PER_FRAME = 6;

/**
 * @template T
 * @typedef {{key: string, text: string, row: T}} Line Row with the text of its document. A new element is created only if the text has changed.
 */

/** @template T */
export class Rows {
  /** @type {Map<string, {text: string, element: HTMLElement}>} */
  #rendered = new Map();
  /** @type {Line<T>[]} */
  #lines = [];
  /** Range of `#lines` that exist as elements: index of the first one, and index after the last one. */
  #first = 0;
  #end = 0;
  /** Indexes of the lines whose elements must be created, the next one last. @type {number[]} */
  #due = [];
  #offset = 0;
  #frame = 0;

  /**
   * @param {HTMLElement} body
   * @param {(row: T) => HTMLElement} make
   * @param {(first: number, end: number) => void} changed is called with the positions of the rows that exist, after each change
   */
  constructor(body, make, changed) {
    this.body = body;
    this.make = make;
    this.changed = changed;
  }

  /**
   * Shows these lines: visible ones at once, up to the limit of a frame, and the others in the next frames.
   * @param {Line<T>[]} lines
   * @param {number} offset position of the first line in the whole table
   * @param {number} first position of the first line in sight
   * @param {number} end position after the last line in sight
   */
  show(lines, offset, first, end) {
    this.stop();
    const keys = new Set(lines.map((line) => line.key));
    for (const key of this.#rendered.keys()) if (!keys.has(key)) this.#rendered.delete(key);
    const focused = document.activeElement?.closest("tr")?.dataset.key;
    this.#lines = lines;
    this.#offset = offset;
    const top = Math.min(Math.max(first - offset, 0), lines.length);
    const bottom = Math.min(Math.max(end - offset, top), lines.length);
    // Existing elements next to the visible rows stay. Rows with an old text are replaced later.
    this.#first = this.#end = top;
    while (this.#end < lines.length && this.#rendered.has(lines[this.#end].key)) this.#end += 1;
    while (this.#first > 0 && this.#rendered.has(lines[this.#first - 1].key)) this.#first -= 1;
    const distance = (/** @type {number} */ index) => Math.max(index - bottom + 1, (top - index) * 1.5, 0) || (index - top) / lines.length;
    const isDue = (/** @type {number} */ index) => index < this.#first || index >= this.#end || this.#rendered.get(lines[index].key)?.text !== lines[index].text;
    this.#due = [...lines.keys()].filter(isDue).sort((a, b) => distance(b) - distance(a));
    const elements = lines.slice(this.#first, this.#end).map((line) => /** @type {{element: HTMLElement}} */ (this.#rendered.get(line.key)).element);
    elements.forEach((element, index) => this.#number(element, this.#first + index));
    arrange(this.body, elements);
    this.#makeSome();
    this.#frame = requestAnimationFrame(() => this.#makeOthers());
    const focusedIndex = lines.findIndex((line) => line.key === focused);
    if (focusedIndex >= this.#first && focusedIndex < this.#end) this.#focus(focusedIndex);
  }

  /** Reserves space for the rows without an element, after the height of a row has changed. */
  makeRoom() {
    this.changed(this.#offset + this.#first, this.#offset + this.#end);
  }

  /** Creates no more rows. */
  stop() {
    cancelAnimationFrame(this.#frame);
  }

  #makeSome() {
    for (let count = 0; count < ROWS_PER_FRAME && this.#due.length; count += 1) this.#put(/** @type {number} */ (this.#due.pop()));
    this.makeRoom();
  }

  /** Creates the other rows after the next frame, which paints the rows that were just created. */
  #makeOthers() {
    if (!this.#due.length) return;
    this.#frame = requestAnimationFrame(() => {
      this.#makeSome();
      this.#makeOthers();
    });
  }

  /** Creates the row of a line, in place of its old row or at an end of the existing rows. @param {number} index */
  #put(index) {
    const { key, text, row } = this.#lines[index];
    const rendered = this.#rendered.get(key);
    const element = rendered?.text === text ? rendered.element : this.make(row);
    this.#number(element, index);
    this.#rendered.set(key, { text, element });
    const old = index >= this.#first && index < this.#end ? this.body.children[index - this.#first] : null;
    if (old) {
      const hadFocus = old.contains(document.activeElement);
      old.replaceWith(element);
      if (hadFocus) this.#focus(index);
    } else if (index < this.#first) {
      this.body.prepend(element);
      this.#first = index;
    } else {
      this.body.append(element);
      this.#end = index + 1;
    }
  }

  /** @param {HTMLElement} element @param {number} index */
  #number(element, index) {
    const position = String(this.#offset + index + 2);
    if (element.getAttribute("aria-rowindex") !== position) element.setAttribute("aria-rowindex", position);
  }

  /** @param {number} index */
  #focus(index) {
    const link = this.body.children[index - this.#first]?.querySelector("a");
    if (link && link !== document.activeElement) link.focus({ preventScroll: true });
  }
}

/** Sets the children of an element, and moves only those whose position has changed. @param {HTMLElement} parent @param {HTMLElement[]} elements */
function arrange(parent, elements) {
  const present = new Set(/** @type {Element[]} */ (elements));
  for (const child of [...parent.children]) if (!present.has(child)) child.remove();
  elements.forEach((element, index) => {
    if (parent.children[index] !== element) parent.insertBefore(element, parent.children[index] ?? null);
  });
}
