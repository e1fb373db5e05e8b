// @ts-check
// A node over time, with the order book at the time of the scrubber.
import { html, render } from "../dist/lit-html.js";
import { ask } from "./api.js";
import { Chart, dark } from "./chart.js";
import { clock, inForce, milli, moment, percent, price, signs } from "./format.js";
import { steady } from "./rows.js";
import { Timeline } from "./timeline.js";
import { took } from "./timing.js";

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
export function showNode(at, node, signal, fault) { show(at, node, null, signal, fault); }

const around = 5 * 60_000; // ms

/**
 * The minutes around a time, as an incident.
 * @param {HTMLElement} at
 * @param {string} node
 * @param {number} time
 * @param {AbortSignal} signal
 * @param {(text: string) => void} fault
 */
export function showIncident(at, node, time, signal, fault) { show(at, node, time, signal, fault); }

/** @typedef {{pins: {at: number, why: string}[]}} Incidents */

/**
 * @param {HTMLElement} at
 * @param {string} node
 * @param {number | null} time null: the whole recording, as it goes on
 * @param {AbortSignal} signal
 * @param {(text: string) => void} fault
 */
function show(at, node, time, signal, fault) {
  const pick = (/** @type {number} */ i) => line.pick(i);
  const charts = [new Chart({ id: "cpu", title: "CPU in thousandths of a core", lines: amounts }, pick),
    new Chart({ id: "price", title: "Price in budget per thousandth of a core", lines: prices }, pick)];
  /** @type {any} */ let book = null;
  /** @type {Incidents} */ let kept = { pins: [] };
  let asked = 0;
  const draw = () => {
    const start = performance.now();
    render(body(node, time, kept, line, charts, book, draw), at);
    for (const c of charts) c.draw(line.series, at, line.index);
    line.scrollEvents(at);
    took("draw", start);
  };
  /** @type {Record<string, string | number>} */ const query = time === null ? { node } : { node, at: time, after: time - around, until: time + around };
  const line = new Timeline("node", query, signal, fault, async () => {
    draw();
    const mine = ++asked;
    try {
      const got = await ask("book", { node, at: line.time }, signal);
      if (mine !== asked) return; // the reader has gone on
      book = got;
      draw();
    } catch (err) { if (!signal.aborted) fault(String(/** @type {Error} */ (err).message)); }
  }, time !== null);
  ask("incidents", { node }, signal).then((got) => { kept = got; if (line.series) draw(); }, () => {}); // the series tells what fails
  signal.addEventListener("abort", () => charts.forEach((c) => c.destroy()), { once: true });
  dark.addEventListener("change", () => { if (line.series) draw(); }, { signal });
  line.run();
}

/**
 * @param {string} node @param {number | null} time @param {Incidents} kept @param {Timeline} line @param {Chart[]} charts
 * @param {any} book @param {() => void} draw
 */
function body(node, time, kept, line, charts, book, draw) {
  const s = line.series, i = line.index;
  if (!s.at.length) return html`<h1>Node ${node}</h1><p id="empty">The recording has no round ${time === null ? "yet" : `around ${moment(time)} UTC`}.</p>`;
  const reads = `supply ${milli(s.supply[i])}, usage ${milli(s.usage[i])}, demand ${milli(s.demand[i])}, system ${milli(s.system[i])}, price ${price(s.price[i])}.`;
  const encoded = encodeURIComponent(node);
  return html`${time === null ? html`<h1>Node ${node}</h1>
    <p><a href=${`#/what-if/${encoded}`}>What if the settings were others?</a> <a href=${`#/benefit/${encoded}`}>Benefit and cost</a>
      <a href=${`#/incident/${encoded}/${line.time}`}>The minutes around the time below</a></p>${incidents(encoded, kept)}` : html`<h1>Incident on node ${node}</h1>
    <p id="incident">Five minutes before and after ${moment(time)} UTC. ${kept.pins.filter((p) => Math.abs(p.at - time) <= around)
      .map((p) => `At ${clock(p.at)} the agent has noted: ${p.why}. `)}</p>`}
    ${line.scrubber(reads)}${time === null ? "" : line.events()}${charts.map((c) => c.template(s, draw))}
    ${book ? orderBook(node, book) : ""}${time === null ? line.events() : ""}`;
}

/** @param {string} encoded node @param {Incidents} kept */
function incidents(encoded, kept) {
  return kept.pins.length === 0 ? "" : html`<h2 id="kept-title">Incidents that the agent has kept</h2>
    <ul id="kept">${kept.pins.map((p) => html`<li><a href=${`#/incident/${encoded}/${p.at}`}>${moment(p.at)} UTC</a>: ${p.why}</li>`)}</ul>`;
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
      <tbody>${steady(document.querySelector("#book tbody"), book.rows, (/** @type {any} */ r) => r.pod).map((/** @type {any} */ r) => html`<tr><td><a href=${to(r.pod)}>${r.pod}</a></td>${r.decided ? html`
        <td>${r.budget}</td><td>${milli(r.demand)}</td><td>${milli(r.usage)}</td><td>${percent(r.throttled)}</td><td>${milli(r.floor)}</td>
        <td>${r.buys === null ? "no price" : milli(r.buys)}</td><td>${milli(r.limit)}</td><td>${r.bound}</td>` : html`
        <td class="text" colspan="8">${r.managed ? "nothing was decided: its counters were too new or not readable" : "not managed: its usage counts"}</td>`}
        <td>${inForce(r.inForce, r.unlimited)}</td></tr>`)}</tbody></table></div>`;
}
