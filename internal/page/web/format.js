// @ts-check
// Figures as text, as the commands of the plugin write them.

/** @param {number | null | undefined} m thousandths of a core */
export const milli = (m) => (m === null || m === undefined ? "–" : `${m}m`);

/**
 * The limit in force of a pod.
 * @param {number | null | undefined} m thousandths of a core; 0 or null: none is known
 * @param {number | undefined} unlimited how many containers have none
 */
export const inForce = (m, unlimited) => (unlimited ? `${m ? `${m}m+` : ""}none` : milli(m || null));

/** Sums over nodes, in cores. @param {number} m thousandths of a core */
export const cores = (m) => (m < 100_000 ? (m / 1000).toFixed(1) : Math.round(m / 1000).toString());

/** @param {number | null | undefined} p */
export function price(p) {
  if (p === null || p === undefined) return "–";
  return p > 0 && p < 0.1 ? p.toPrecision(3) : p.toFixed(3);
}

/** @param {number | null | undefined} r a share of 1 */
export const percent = (r) => (r === null || r === undefined ? "–" : `${Math.round(100 * r)}%`);

/** @param {number} ms since 1970, as the time of day in UTC */
export const clock = (ms) => new Date(ms).toISOString().slice(11, 19);

/** @param {number} ns */
export const seconds = (ns) => `${(ns / 1e9).toFixed(1)}s`;

/** @param {number} ms since 1970, as the day and the time of day in UTC */
export const moment = (ms) => new Date(ms).toISOString().slice(0, 19).replace("T", " ");

/** States have a sign besides the colour. @type {Record<string, string>} */
export const signs = { free: "○", scarce: "▲", full: "■", unknown: "?", silent: "×" };
