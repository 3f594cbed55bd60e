// Numbers and times as text for people. An unknown value is a dash, never 0.

import { h } from "./dom.js";

export const NONE = "–";
const HIGHEST_BUCKET_MS = 29_900; // rounded codes of the history may be just below 30 s

/** Formatters are kept, because making one takes longer than a row of the fleet. */
const COMPACT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const MONEY = new Intl.NumberFormat("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 });
const BY_DIGITS = [1, 2, 3, 4].map((digits) => new Intl.NumberFormat("en", { maximumSignificantDigits: digits, useGrouping: false }));

/** @param {number | null | undefined} value @param {number} digits 1 to 4 */
export function number(value, digits = 3) {
  if (value === null || value === undefined) return NONE;
  return Math.abs(value) >= 10000 ? COMPACT.format(value) : BY_DIGITS[digits - 1].format(value);
}

/** Formats a number of things that are counted, so that each of them counts: 7,512 and not 7510. @param {number | null | undefined} value */
export function integer(value) {
  return value === null || value === undefined ? NONE : WHOLE.format(value);
}

/** Formats an amount of money without its currency. @param {number | null | undefined} value */
export function money(value) {
  if (value === null || value === undefined) return NONE;
  if (value > 0 && value < 0.01) return "< 0.01";
  return value === 0 ? "0" : MONEY.format(value);
}

/** Formats a number of requests, which is a mean and so may be a fraction. @param {number | null | undefined} value */
export function count(value) {
  if (value === null || value === undefined) return NONE;
  return value > 0 && value < 0.1 ? "< 0.1" : number(value < 10 ? Math.round(value * 10) / 10 : Math.round(value), 4);
}

/** Formats requests per second. @param {number | null | undefined} value */
export function rate(value) {
  if (value === null || value === undefined) return NONE;
  return value > 0 && value < 0.01 ? "< 0.01" : number(value);
}

/** Returns a dash for an unknown value, with the reason why it is unknown. @param {string} why */
export function missing(why) {
  return h("span", { class: "none", title: why }, NONE);
}

/** Returns the text, or a dash with the reason if the value is unknown. @param {number | null | undefined} value @param {string} text @param {string} why */
export function known(value, text, why) {
  return value === null || value === undefined ? missing(why) : text;
}

/** @param {number | null | undefined} value */
export function percent(value) {
  return value === null || value === undefined ? NONE : `${number(value, 2)} %`;
}

/** @param {number | null | undefined} value in ms */
export function millis(value) {
  if (value === null || value === undefined) return NONE;
  return value >= 1000 ? `${number(value / 1000)} s` : `${number(value)} ms`;
}

/** Formats a quantile of the client latency; those above the highest bucket have that bucket's bound. @param {number | null | undefined} value in ms */
export function quantile(value) {
  return value !== null && value !== undefined && value >= HIGHEST_BUCKET_MS ? "> 30 s" : millis(value);
}

/** @param {number | null} seconds */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return NONE;
  if (seconds < 1) return "< 1 s";
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} d`;
}

/** Largest difference between the clocks of the browser and the operator that is ignored. A slow response looks like one. */
const MAX_DIFFERENCE_MS = 30_000;
/** Time by which the operator's clock is ahead of the browser's; 0 if they seem to agree. */
let aheadMs = 0;

/** Compares the browser's clock with the time of a response. @param {string | null} date the header Date */
export function setClock(date) {
  const difference = Date.parse(date || "") - Date.now();
  if (!Number.isNaN(difference)) aheadMs = Math.abs(difference) > MAX_DIFFERENCE_MS ? difference : 0;
}

/** Returns the seconds since 1970 by the operator's clock. */
export function now() {
  return (Date.now() + aheadMs) / 1000;
}

/** Formats seconds since 1970 as a time of day, with the date if it isn't today. @param {number | null} at */
export function clock(at) {
  if (!at) return NONE;
  const date = new Date(at * 1000);
  const time = date.toLocaleTimeString("en-GB");
  return date.toDateString() === new Date(now() * 1000).toDateString() ? time : `${date.toLocaleDateString("en-CA")} ${time}`;
}

/** Converts a Kubernetes timestamp to seconds since 1970; null if there is none. @param {string | null | undefined} stamp */
export function seconds(stamp) {
  const at = Date.parse(stamp || "");
  return Number.isNaN(at) ? null : at / 1000;
}

/** @param {string} stamp */
export function age(stamp) {
  const at = seconds(stamp);
  return at === null ? NONE : duration(Math.max(now() - at, 0));
}

/** @param {number} count @param {string} word */
export function plural(count, word) {
  return `${count} ${word}${count === 1 ? "" : "s"}`;
}
