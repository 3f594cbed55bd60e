// Elements and texts. Everything that comes from the cluster is inserted as text, never as markup.

/**
 * Creates an element with attributes, listeners (`onclick`) and children; null and false are skipped.
 * @param {string} name
 * @param {Record<string, any>} [attributes]
 * @param {...(Node | string | number | null | false)} children
 * @returns {HTMLElement}
 */
export function h(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

/** Sets the title of the browser's tab, with the cluster's name if there is one. @param {string} text */
export function setTitle(text) {
  document.title = [text, byId("cluster").textContent, "Halcyon"].filter(Boolean).join(" · ");
}

const SVG = "http://www.w3.org/2000/svg";

/**
 * Creates an SVG element.
 * @param {string} name
 * @param {Record<string, any>} [attributes]
 * @param {...(Node | string | number | null | false)} children
 * @returns {SVGElement}
 */
export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

/**
 * @template {Element} T
 * @param {T} element
 * @param {Record<string, any>} attributes
 * @param {(Node | string | number | null | false)[]} children
 * @returns {T}
 */
function fill(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  for (const child of children) if (child !== null && child !== false && child !== undefined) element.append(typeof child === "number" ? String(child) : child);
  return element;
}

/** Creates an `input`. @param {Record<string, any>} [attributes] @returns {HTMLInputElement} */
export function input(attributes = {}) {
  return fill(document.createElement("input"), attributes, []);
}

/** Returns an element of index.html. @param {string} id @returns {HTMLElement} */
export function byId(id) {
  const element = document.getElementById(id);
  if (!element) throw new Error(`index.html has no element ${id}`);
  return element;
}

/** Returns an address that may be broken before a dot or a colon, and not within a word. @param {string} address */
export function breakable(address) {
  return h("span", {}, ...address.split(/(?=[.:])/).flatMap((part) => [h("wbr"), part]));
}

/** Returns the message of an error. @param {unknown} error */
export function errorMessage(error) {
  return error instanceof Error ? error.message : String(error);
}

/**
 * Sets an element's text if it differs: screen readers read a text again whenever it is set.
 * @param {Element} element
 * @param {string | null} text
 */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/**
 * Replaces the children that differ from the new ones, so that selected text stays selected. If the focused control is replaced, the new
 * control with the same attributes gets the focus.
 * @param {HTMLElement} element
 * @param {...(Node | string)} children
 */
export function refill(element, ...children) {
  const fresh = /** @type {HTMLElement} */ (element.cloneNode(false));
  fresh.append(...children);
  const focused = element.contains(document.activeElement) ? document.activeElement : null;
  const nodes = [...fresh.childNodes];
  while (element.childNodes.length > nodes.length) element.lastChild?.remove();
  nodes.forEach((node, index) => {
    const old = element.childNodes[index];
    if (!old) element.append(node);
    else if (!old.isEqualNode(node)) old.replaceWith(node);
  });
  if (!focused || document.activeElement === focused) return;
  const key = identity(focused);
  const match = key && [...element.querySelectorAll(focused.localName)].find((candidate) => identity(candidate) === key);
  if (match instanceof HTMLElement) match.focus({ preventScroll: true });
}

/** Returns the attributes that identify a control, independent of its text; empty if it has none. @param {Element} control */
function identity(control) {
  const names = control.getAttributeNames().filter((name) => name === "href" || name === "aria-label" || name.startsWith("data-"));
  return names.map((name) => `${name}=${control.getAttribute(name)}`).join("\n");
}
