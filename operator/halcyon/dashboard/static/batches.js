// Batch inference on a model's page: the batches with their progress and failures.

import { get } from "./api.js";
import { h, refill } from "./dom.js";
import { clock, missing, NONE, seconds, integer } from "./format.js";
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
    const batches = await get(`/api/models/${path}/batches`).catch(() => null); // the stream reports the reason
    if (!isOpen) return;
    if (batches) {
      element.hidden = !batches.length;
      refill(rows, ...batches.map(batchRow));
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

/** @param {Batch} batch */
function batchRow(batch) {
  const isBusy = batch.state === "Running";
  const notes = [batch.state === "Running" || batch.state === "Completed" ? "" : batch.message, batch.late].filter(Boolean);
  const done = batch.total === null || batch.done === null ? missing("The data set has not been read yet.") : `${integer(batch.done)} of ${integer(batch.total)}`;
  const end = batch.completed ? `ended ${clock(seconds(batch.completed))}` : batch.eta ? clock(seconds(batch.eta)) : isBusy ? missing("The rate is not known yet.") : NONE;
  return row(batch.name, h("div", {}, batch.state, ...notes.map((note) => h("span", { class: "reason" }, note))), done, batch.failed === null ? NONE : integer(batch.failed), batch.rate ?? NONE, end);
}
