// @ts-check
// A node over time, with the order book at the time of the scrubber.
import { html, render } from "../dist/lit-html.js";
import { ask } from "./api.js";
import { Chart } from "./chart.js";
import { milli, percent, price, signs } from "./format.js";
import { Timeline } from "./timeline.js";

/** @type {import("./chart.js").Line[]} */
const amounts = [
  { key: "supply", name: "Supply", colour: 4, dash: [], show: milli },
  { key: "usage", name: "Usage", colour: 0, dash: [8, 4], show: milli },
  { key: "demand", name: "Demand", colour: 1, dash: [2, 3], show: milli },
  { key: "system", name: "System", colour: 3, dash: [10, 3, 2, 3], show: milli },
];
const prices = [{ key: "price", name: "Price", colour: 2, dash: [], show: price }];

/**
 * @param {HTMLElement} at
 * @param {string} node
 * @param {AbortSignal} signal
 * @param {(text: string) => void} fault
 */
export function showNode(at, node, signal, fault) {
  const pick = (/** @type {number} */ i) => line.pick(i);
  const charts = [new Chart({ id: "cpu", title: "CPU in thousandths of a core", lines: amounts }, pick),
    new Chart({ id: "price", title: "Price in budget per thousandth of a core", lines: prices }, pick)];
  /** @type {any} */ let book = null;
  let asked = 0;
  const draw = () => {
    render(body(node, line, charts, book, draw), at);
    for (const c of charts) c.draw(line.series, at, line.index);
  };
  const line = new Timeline("node", { node }, signal, fault, async () => {
    draw();
    const mine = ++asked;
    try {
      const got = await ask("book", { node, at: line.time }, signal);
      if (mine !== asked) return; // the reader has gone on
      book = got;
      draw();
    } catch (err) { if (!signal.aborted) fault(String(/** @type {Error} */ (err).message)); }
  });
  signal.addEventListener("abort", () => charts.forEach((c) => c.destroy()), { once: true });
  line.run();
}

/** @param {string} node @param {Timeline} line @param {Chart[]} charts @param {any} book @param {() => void} draw */
function body(node, line, charts, book, draw) {
  const s = line.series, i = line.index;
  if (!s.at.length) return html`<h1>Node ${node}</h1><p>The recording has no round yet.</p>`;
  const reads = `supply ${milli(s.supply[i])}, usage ${milli(s.usage[i])}, demand ${milli(s.demand[i])}, system ${milli(s.system[i])}, price ${price(s.price[i])}.`;
  return html`<h1>Node ${node}</h1>
    <p><a href=${`#/what-if/${encodeURIComponent(node)}`}>What if the reserve were another?</a></p>
    ${line.scrubber(reads)}${charts.map((c) => c.template(s, draw))}
    ${book ? orderBook(node, book) : ""}${line.events()}`;
}

/** @param {string} node @param {any} book */
function orderBook(node, book) {
  const to = (/** @type {string} */ pod) => `#/pod/${encodeURIComponent(node)}/${encodeURIComponent(pod)}`;
  const heads = ["Pod", "Budget", "Demand", "Usage", "Throttled", "Floor", "Budget buys", "Limit", "Bound by", "In force"];
  return html`<h2>Order book</h2>
    <p id="market">The market is <span class=${book.state}>${signs[book.state]} ${book.state}</span>: the pods demand ${milli(book.demand)} of a
      supply of ${milli(book.supply)}, and the price is ${price(book.price)}.</p>
    <div class="scroll" tabindex="0" role="region" aria-label="Order book"><table id="book">
      <thead><tr>${heads.map((h) => html`<th scope="col">${h}</th>`)}</tr></thead>
      <tbody>${book.rows.map((/** @type {any} */ r) => html`<tr><td><a href=${to(r.pod)}>${r.pod}</a></td>${r.decided ? html`
        <td>${r.budget}</td><td>${milli(r.demand)}</td><td>${milli(r.usage)}</td><td>${percent(r.throttled)}</td><td>${milli(r.floor)}</td>
        <td>${r.buys === null ? "no price" : milli(r.buys)}</td><td>${milli(r.limit)}</td><td>${r.bound}</td>` : html`
        <td class="text" colspan="8">${r.managed ? "nothing was decided: its counters were too new or not readable" : "not managed: its usage counts"}</td>`}
        <td>${r.inForce ? milli(r.inForce) : "–"}</td></tr>`)}</tbody></table></div>`;
}
