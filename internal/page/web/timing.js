// @ts-check
// Times of drawing, which the benchmarks of the page read. A page stays open for days, so few of them are kept.

const kept = 100;

/** Notes when something is drawn for the first time. @param {string} name */
export function drawn(name) {
  if (performance.getEntriesByName(name, "mark").length === 0) performance.mark(name);
}

/** Notes how long drawing took. @param {string} name @param {number} start by performance.now */
export function took(name, start) {
  if (performance.getEntriesByName(name, "measure").length >= kept) performance.clearMeasures(name);
  performance.measure(name, { start });
}
