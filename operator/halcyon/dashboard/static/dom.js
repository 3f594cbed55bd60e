// Elements and texts. Everything that comes from the cluster goes in as text, never as markup.

/**
 * An element with attributes, listeners (`onclick`) and children; what is null or false is left out.
 * @param {string} name
 * @param {Record<string, any>} [attributes]
 * @param {...(Node | string | number | null | false)} children
 * @returns {HTMLElement}
 */
export function h(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

const SVG = "http://www.w3.org/2000/svg";

/**
 * The same for SVG.
 * @param {string} name
 * @param {Record<string, any>} [attributes]
 * @param {...(Node | string | number | null | false)} children
 * @returns {SVGElement}
 */
export function svg(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

/**
 * @template {Element} T
 * @param {T} element
 * @param {Record<string, any>} attributes
 * @param {(Node | string | number | null | false)[]} children
 * @returns {T}
 */
function filled(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  for (const child of children) if (child !== null && child !== false && child !== undefined) element.append(typeof child === "number" ? String(child) : child);
  return element;
}

/** An `input`. @param {Record<string, any>} [attributes] @returns {HTMLInputElement} */
export function input(attributes = {}) {
  return filled(document.createElement("input"), attributes, []);
}

/** An element of index.html. @param {string} id @returns {HTMLElement} */
export function byId(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`index.html has no element ${id}`);
  return found;
}

/** What a failure says of itself. @param {unknown} failure */
export function sentence(failure) {
  return failure instanceof Error ? failure.message : String(failure);
}

/**
 * Sets an element's text where it is another one: a text that is set anew is read aloud anew.
 * @param {Element} element
 * @param {string | null} text
 */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/**
 * Replaces the children where the new ones say something else: a selection of text and the focus stay.
 * @param {HTMLElement} element
 * @param {...(Node | string)} children
 */
export function refill(element, ...children) {
  const fresh = /** @type {HTMLElement} */ (element.cloneNode(false));
  fresh.append(...children);
  if (!fresh.isEqualNode(element)) element.replaceChildren(...fresh.childNodes);
}
