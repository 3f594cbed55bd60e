// The page around the pages: who is signed in, which page is shown, the theme, and the keys.

import { get, Refused } from "./api.js";
import { byId, h, say, sentence } from "./dom.js";
import { fleetPage } from "./fleet.js";
import { modelPage } from "./model.js";

const main = byId("main");
const live = byId("live");
const signOut = byId("sign-out");
let close = () => {};
/** @type {import("../documents.js").Session | null} */
let about = null;

/** Whether what is shown is of now; why not. @param {boolean} isLive @param {string} why */
function state(isLive, why) {
  live.className = isLive ? "live" : "late";
  say(live, isLive ? "Live" : why);
}

/** @param {string} why */
function signIn(why) {
  close();
  close = () => {};
  say(live, "");
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
          await show();
        } catch (refused) {
          say(error, sentence(refused));
          token.focus();
        }
      },
    },
    h("h1", {}, "Sign in"),
    h("label", { for: "token" }, "Token of the cluster"),
    token,
    h("p", { id: "hint" }, "For example of ", h("code", {}, "kubectl create token NAME"), ". It is kept in a cookie that ends with the browser's session; you see what its owner may list."),
    error,
    h("button", { type: "submit" }, "Sign in"),
  );
  document.title = "Sign in · Halcyon";
  signOut.hidden = true;
  main.replaceChildren(form);
  token.focus();
}

async function show() {
  try {
    const session = /** @type {import("../documents.js").Session} */ (await get("/api/session"));
    about = session;
    signOut.hidden = session.open;
    signOut.title = `Signed in as ${session.user}`;
  } catch (refused) {
    if (refused instanceof Refused && refused.status === 401) return signIn("");
    main.replaceChildren(h("h1", {}, "Halcyon"), h("p", { role: "alert", class: "error" }, sentence(refused)));
    setTimeout(show, 5000);
    return;
  }
  route();
}

function route() {
  if (!about) return;
  /** @type {import("../documents.js").Heard} */
  const heard = { state, signIn: (refused) => signIn(refused.message) };
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").map(decodeURIComponent);
  close();
  main.scrollTop = 0;
  if (parts.length === 2) close = modelPage(main, parts[0], parts[1], heard);
  else close = fleetPage(main, new URLSearchParams(query), heard);
}

signOut.addEventListener("click", async () => {
  await get("/api/session", { method: "DELETE" }).catch(() => {});
  signIn("You have signed out.");
});

addEventListener("hashchange", () => {
  if (location.hash === "#main") return;
  route();
  main.focus();
});

addEventListener("keydown", (event) => {
  const writes = event.target instanceof Element && event.target.matches("input, select, textarea");
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/" && !writes) {
    const filter = document.getElementById("filter");
    if (!filter) return;
    event.preventDefault();
    filter.focus();
  } else if (event.key === "Escape" && !writes && location.hash.length > 2) {
    history.length > 1 ? history.back() : (location.hash = "#/");
  }
});

const THEMES = ["system", "light", "dark"];
const theme = byId("theme");

/** @param {string} name */
function wear(name) {
  if (name === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  say(theme, `Theme: ${name}`);
  recolour();
}

/** Tells what is drawn in pixels that the colours are others now. */
function recolour() {
  dispatchEvent(new Event("themechange"));
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);

theme.addEventListener("click", () => {
  const next = THEMES[(THEMES.indexOf(localStorage.getItem("theme") || "system") + 1) % THEMES.length];
  localStorage.setItem("theme", next);
  wear(next);
});

wear(localStorage.getItem("theme") || "system");
show();
