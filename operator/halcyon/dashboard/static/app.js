// The frame of all pages: sign-in, navigation, theme and keyboard shortcuts.

import { get, RequestError } from "./api.js";
import { byId, errorMessage, h, setText, setTitle } from "./dom.js";
import { fleetPage } from "./fleet.js";

const main = byId("main");
const live = byId("live");
const cluster = byId("cluster");
const signOut = byId("sign-out");
let close = () => {};
/** Number of pages that were opened. */
let opened = 0;
/** @type {import("../documents.js").Session | null} */
let session = null;

/** Shows whether the page is up to date, or why it isn't. @param {boolean} isLive @param {string} why */
function showState(isLive, why) {
  live.className = isLive ? "live" : "late";
  setText(live, isLive ? "Live" : why);
  if (isLive) globalThis.requestIdleCallback?.(() => preload(PAGE_OF_A_MODEL));
}

/** Shows the cluster's name in the header; `setTitle` shows it in the browser's tab. @param {string} name */
function showCluster(name) {
  cluster.hidden = !name;
  setText(cluster, name);
}

/** @param {string} why */
function showSignIn(why) {
  close();
  close = () => {};
  opened += 1;
  setText(live, "");
  const error = h("p", { role: "alert", class: "error" }, why);
  const token = /** @type {HTMLTextAreaElement} */ (h("textarea", { id: "token", rows: 5, required: true, autocomplete: "off", spellcheck: "false", "aria-describedby": "hint" }));
  const form = h(
    "form",
    {
      class: "sign-in",
      onsubmit: async (/** @type {Event} */ event) => {
        event.preventDefault();
        try {
          await get("/api/session", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ token: token.value }) });
          await start();
        } catch (failure) {
          setText(error, errorMessage(failure));
          token.focus();
        }
      },
    },
    h("h1", {}, "Sign in"),
    h("label", { for: "token" }, "Cluster token"),
    token,
    h("p", { id: "hint" }, "For example, from ", h("code", {}, "kubectl create token NAME"), ". It is kept in a cookie that ends with the browser's session. You see the models that its owner may list."),
    error,
    h("button", { type: "submit" }, "Sign in"),
  );
  setTitle("Sign in");
  signOut.hidden = true;
  main.replaceChildren(form);
  token.focus();
}

async function start() {
  try {
    const answer = /** @type {import("../documents.js").Session} */ (await get("/api/session", {})); // as the page's preload requests it
    session = answer;
    signOut.hidden = answer.open;
    signOut.title = `Signed in as ${answer.user}`;
    showCluster(answer.cluster);
  } catch (failure) {
    if (failure instanceof RequestError && failure.status === 401) return showSignIn("");
    main.replaceChildren(h("h1", {}, "Halcyon"), h("p", { role: "alert", class: "error" }, errorMessage(failure)));
    setTimeout(start, 5000);
    return;
  }
  route();
}

function route() {
  if (!session) return;
  /** @type {import("../documents.js").PageListener} */
  const listener = { state: showState, signIn: (error) => showSignIn(error.message), links: () => session?.links ?? { grafana: "", alerts: "", runbooks: "" }, cluster: () => session?.cluster ?? "" };
  const [, query = ""] = location.hash.split("?");
  const parts = pathOf(location.hash).split("/").map(decoded);
  close();
  main.scrollTop = 0;
  const parameters = new URLSearchParams(query);
  opened += 1;
  if (parts.length === 3 && parts[2] === "measured") openLater(import("./measured.js").then(({ measuredPage }) => () => measuredPage(main, parts[0], parts[1], parameters, listener)));
  else if (parts.length === 2) openLater(import("./model.js").then(({ modelPage }) => () => modelPage(main, parts[0], parts[1], parameters, listener)));
  else close = fleetPage(main, parameters, listener);
}

/** Returns the path in the hash of an address; empty for the page of all models. @param {string} hash */
function pathOf(hash) {
  return hash.replace(/^#\/?/, "").split("?")[0];
}

/** Decodes a part of an address; a part that was cut off stays as it is. @param {string} part */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/**
 * Opens a page once its module is loaded, unless another page was opened meanwhile.
 * @param {Promise<() => () => void>} page opens the page, and returns the function that closes it
 */
async function openLater(page) {
  const mine = opened;
  close = () => {};
  preload(PAGE_OF_A_MODEL);
  try {
    const open = await page;
    if (mine === opened) close = open();
  } catch {
    if (mine === opened) main.replaceChildren(h("h1", {}, "Halcyon"), h("p", { role: "alert", class: "error" }, "The page can't be loaded: the operator can't be reached. Reload it."));
  }
}

/** Modules of the pages of a model, which the fleet's page doesn't need. */
const PAGE_OF_A_MODEL = ["advice", "batches", "chart", "commands", "details", "measured", "model", "series", "tables", "whatif", "uplot/uPlot.esm"];

/** Loads modules together, so that none waits for the one that imports it. @param {string[]} modules */
function preload(modules) {
  while (modules.length) document.head.append(h("link", { rel: "modulepreload", href: `/static/${modules.pop()}.js` }));
}

signOut.addEventListener("click", async () => {
  try {
    await get("/api/session", { method: "DELETE" });
  } catch (failure) {
    return showState(false, `You are still signed in. ${errorMessage(failure)}`);
  }
  showSignIn("You have signed out.");
});

// The address stays that of the page, so that a reload opens it again.
document.querySelector(".skip")?.addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});

/** Address of the page of all models as it was last shown, with its filter. */
let allModels = "#/";

addEventListener("hashchange", (event) => {
  const left = new URL(event.oldURL).hash;
  if (!pathOf(left).includes("/")) allModels = left || "#/";
  route();
  main.focus();
});

addEventListener("keydown", (event) => {
  const isTyping = event.target instanceof Element && event.target.matches("input, select, textarea");
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/" && !isTyping) {
    const filter = document.getElementById("filter");
    if (!filter) return;
    event.preventDefault();
    filter.focus();
  } else if (event.key === "u" && !isTyping) {
    const parts = pathOf(location.hash).split("/");
    if (parts.length > 1) location.hash = parts.length > 2 ? `#/${parts[0]}/${parts[1]}` : allModels;
  }
});

const THEMES = ["system", "light", "dark"];
const theme = byId("theme");
/** The theme that was chosen; a browser that stores nothing begins with the system's. */
let chosen = "system";
try {
  chosen = localStorage.getItem("theme") || chosen;
} catch {}

/** @param {string} name */
function applyTheme(name) {
  if (name === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  setText(theme, `Theme: ${name}`);
  repaint();
}

/** Makes canvases repaint with the new colours. */
function repaint() {
  dispatchEvent(new Event("themechange"));
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);

theme.addEventListener("click", () => {
  chosen = THEMES[(THEMES.indexOf(chosen) + 1) % THEMES.length];
  applyTheme(chosen);
  try {
    localStorage.setItem("theme", chosen);
  } catch {}
});

applyTheme(chosen);
start();
