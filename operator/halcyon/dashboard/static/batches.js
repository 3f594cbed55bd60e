// Batch inference on a model's page: what runs, how far it is, and what has failed.

import { get } from "./api.js";
import { h, refill } from "./dom.js";
import { clock, missing, NONE, seconds, whole } from "./format.js";
import { row, scroller, table } from "./tables.js";

/** @typedef {import("../documents.js").Batch} Batch */

const REFRESH_MS = 10_000;

/**
 * Returns the section with a model's batches, which is hidden if there are none, and the function that ends its updates.
 * @param {string} path of the model
 */
export function batchList(path) {
  const rows = h("tbody");
  const element = h("section", { "aria-labelledby": "h-batches", hidden: true }, h("h2", { id: "h-batches" }, "Batch inference"), scroller("Batch inference", table(["Batch", "State", "Done", "Failures", "Rows per second", "Expected end"], rows, "Batch inference")));
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  let isOpen = true;

  async function read() {
    /** @type {Batch[] | null} */
    const found = await get(`/api/models/${path}/batches`).catch(() => null); // the stream reports the reason
    if (!isOpen) return;
    if (found) {
      element.hidden = !found.length;
      refill(rows, ...found.map(batchRow));
    }
    timer = setTimeout(read, REFRESH_MS);
  }

  read();
  return {
    element,
    end() {
      isOpen = false;
      clearTimeout(timer);
    },
  };
}

/** @param {Batch} one */
function batchRow(one) {
  const isBusy = one.state === "Running";
  const notes = [one.state === "Running" || one.state === "Completed" ? "" : one.message, one.late].filter(Boolean);
  const done = one.total === null || one.done === null ? missing("The data set has not been read yet.") : `${whole(one.done)} of ${whole(one.total)}`;
  const end = one.completed ? `ended ${clock(seconds(one.completed))}` : one.eta ? clock(seconds(one.eta)) : isBusy ? missing("The rate is not known yet.") : NONE;
  return row(one.name, h("div", {}, one.state, ...notes.map((note) => h("span", { class: "reason" }, note))), done, one.failed === null ? NONE : whole(one.failed), one.rate ?? NONE, end);
}
