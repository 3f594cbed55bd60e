// Page "Measured" of a model: the results of `halcyon bench` that the cluster keeps, and a report of one of them.

import { get, modelPath } from "./api.js";
import { commandList, copyClicked } from "./commands.js";
import { breakable, errorMessage, h, setText, setTitle } from "./dom.js";
import { age, NONE, number } from "./format.js";
import { none, row, scroller, table } from "./tables.js";

/** @typedef {import("../documents.js").BenchFigure} BenchFigure */
/** @typedef {import("../documents.js").BenchResult} BenchResult */

/** @type {(keyof import("../documents.js").BenchLatencies)[]} */
const PERCENTILES = ["mean", "p50", "p90", "p95", "p99", "p99_9", "max"];

/**
 * @param {HTMLElement} main
 * @param {string} namespace
 * @param {string} name
 * @param {URLSearchParams} params of the page's URL
 * @param {import("../documents.js").PageListener} listener
 * @returns {() => void} closes the page
 */
export function measuredPage(main, namespace, name, params, listener) {
  setTitle(`Measured: ${name}`);
  const rows = h("tbody");
  const report = h("div", { class: "measured" });
  const error = h("p", { role: "alert", class: "error", hidden: true });
  const path = modelPath(namespace, name);
  let isOpen = true;
  main.replaceChildren(
    h("nav", { "aria-label": "Path", class: "crumbs" }, h("a", { href: "#/" }, "All models"), h("a", { href: `#/?namespace=${encodeURIComponent(namespace)}` }, namespace), h("a", { href: `#/${path}` }, name)),
    h("h1", {}, "Measured", h("span", { class: "space" }, `${namespace}/${name}`)),
    error,
    scroller("Results", table(["Made", "Load", "Answered/s", "P50, ms", "P99, ms", "Failed", "Valid"], rows, "Results")),
    report,
    commandList([{ command: `halcyon bench ${name} -n ${namespace}`, effect: "measures a copy of the model and adds the result" }]),
  );
  main.addEventListener("click", copyClicked);
  listener.state(false, ""); // this page is read once
  get(`/api/models/${path}/measured`)
    .then((/** @type {BenchResult[]} */ results) => {
      if (!isOpen) return;
      rows.replaceChildren(...results.map((result, index) => resultRow(result, `#/${path}/measured?result=${index}`)));
      if (!results.length) rows.replaceChildren(none(7, "The model has not been measured yet, or its results were deleted."));
      const shown = results[Number(params.get("result") ?? 0)] ?? results[0];
      if (shown) report.replaceChildren(...reportOf(shown, name));
    })
    .catch((failure) => {
      if (!isOpen) return;
      if (failure.status === 401) return listener.signIn(failure);
      error.hidden = false;
      setText(error, errorMessage(failure));
    });
  return () => {
    isOpen = false;
    main.removeEventListener("click", copyClicked);
  };
}

/** @param {BenchResult} result @param {string} link */
function resultRow(result, link) {
  const { requests, run, latency } = result;
  const line = row("", load(result), figure(result.throughput), figure(latency.p50), figure(latency.p99), `${requests.due - requests.answered} of ${requests.due}`, run.valid ? "yes" : "no");
  line.querySelector("th")?.append(h("a", { href: link }, result.made_at), h("span", { class: "space" }, ` ${age(result.made_at)} ago`));
  return line;
}

/** @param {BenchResult} result */
function load({ scenario }) {
  return [scenario.preset || scenario.kind, scenario.rate_rps !== null && `${number(scenario.rate_rps)}/s`, scenario.callers !== null && `${scenario.callers} callers`].filter(Boolean).join(", ");
}

/** Formats a value with its 95 % interval; a value that wasn't measured is a dash with the reason. @param {BenchFigure} measure */
function figure(measure) {
  if (measure.value === null) return h("span", { class: "none", title: `not measured: ${measure.reason}` }, NONE);
  return h("span", {}, number(measure.value), measure.interval ? h("small", { class: "space" }, ` ${number(measure.interval[0])} to ${number(measure.interval[1])}`) : "");
}

/** Returns the report of a result. @param {BenchResult} result @param {string} name of the model */
function reportOf(result, name) {
  const { run, verdict, latency, phases, place } = result;
  const file = `${name}-${result.made_at.replace(/[^0-9TZ]/g, "")}.json`;
  const reasons = run.valid ? [] : [h("section", { class: "panel warn" }, h("h3", {}, "The run isn't valid"), h("ul", { class: "problems" }, ...run.invalid_because.map((reason) => h("li", {}, reason))))];
  const durations = /** @type {[string, import("../documents.js").BenchLatencies][]} */ ([["from due", latency], ["from send", result.from_send], ["first byte", result.first_byte]]);
  const parts = phases?.parts.filter((part) => part.mean.value !== null) ?? [];
  const facts = Object.entries({ Place: place?.kind, Revision: place?.revision, Image: place?.image_id || place?.image, Node: place?.node, Replicas: place?.replicas, Client: result.client.limit === "none" ? "doesn't limit" : result.client.evidence, Seed: result.scenario.seed, Arguments: place?.arguments.join(" ") });
  return [
    h("h2", {}, `Result of ${result.made_at}`),
    ...(verdict ? [h("p", { class: "headline" }, verdict.sentence, verdict.unsure ? ` Not sure: ${verdict.others.join(", ")} would explain it too.` : "")] : []),
    ...reasons,
    h("h3", {}, "Latency, ms"),
    scroller("Latency", table(["", ...PERCENTILES.map((each) => each.replace(/^p/, "P").replace("_", "."))], h("tbody", {}, ...durations.map(([title, all]) => row(title, ...PERCENTILES.map((each) => figure(all[each]))))), "Latency")),
    ...(result.failures.length ? [h("h3", {}, "Failures"), scroller("Failures", table(["Kind", "Message", "Count"], h("tbody", {}, ...result.failures.map((each) => row(each.outcome, each.message, each.count))), "Failures"))] : []),
    ...(parts.length ? [h("h3", {}, "Phases"), scroller("Phases", table(["Phase", "Mean, ms", "Measured by"], h("tbody", {}, ...parts.map((part) => row(part.name.replace("_", " "), figure(part.mean), part.side))), "Phases"))] : []),
    h("dl", { class: "facts" }, ...facts.filter(([, value]) => value !== null && value !== undefined && value !== "").map(([term, value]) => h("div", { class: ["Image", "Arguments"].includes(term) ? "wider-fact" : null }, h("dt", {}, term), h("dd", {}, breakable(String(value)))))),
    h("p", {}, h("a", { href: `data:application/json,${encodeURIComponent(JSON.stringify(result))}`, download: file }, `Save ${file}`)),
    commandList([{ command: `halcyon report ${file}`, effect: "makes the whole report, with charts, of the saved file" }]),
  ];
}
