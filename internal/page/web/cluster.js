// @ts-check
// The cluster: tiles, cells by price, and the table of nodes.
import { html, render } from "../dist/lit-html.js";
import { ask, repeat } from "./api.js";
import { dark } from "./chart.js";
import { clock, cores, milli, price, signs } from "./format.js";
import { steady } from "./rows.js";
import { drawn } from "./timing.js";

/**
 * @typedef {{node: string, state: string, price: number, supply: number, usage: number, demand: number,
 *   managed: number, capped: number, seen: number}} Node
 */

const columns = [
  { key: "node", name: "Node", show: (/** @type {Node} */ n) => html`<a href=${`#/node/${encodeURIComponent(n.node)}`}>${n.node}</a>` },
  { key: "state", name: "State", show: (/** @type {Node} */ n) => html`<span class=${n.state}>${signs[n.state]} ${n.state}</span>` },
  { key: "price", name: "Price", show: (/** @type {Node} */ n) => price(n.price) },
  { key: "supply", name: "Supply", show: (/** @type {Node} */ n) => milli(n.supply) },
  { key: "usage", name: "Usage", show: (/** @type {Node} */ n) => milli(n.usage) },
  { key: "demand", name: "Demand", show: (/** @type {Node} */ n) => milli(n.demand) },
  { key: "managed", name: "Managed", show: (/** @type {Node} */ n) => n.managed },
  { key: "capped", name: "Capped", show: (/** @type {Node} */ n) => n.capped },
  { key: "seen", name: "Seen (UTC)", show: (/** @type {Node} */ n) => clock(n.seen) },
];
const pageRows = 50;
const states = ["free", "scarce", "full", "unknown", "silent"];

/**
 * @param {HTMLElement} at
 * @param {AbortSignal} signal
 * @param {(text: string) => void} fault
 */
export async function showCluster(at, signal, fault) {
  const view = { sort: "price", down: true, filter: "", page: 0, /** @type {Node[]} */ nodes: [], /** @type {string[]} */ notes: [] };
  const draw = () => { render(body(view, draw), at); drawCells(at, view.nodes); drawn("cluster drawn"); };
  dark.addEventListener("change", () => { if (view.nodes.length) draw(); }, { signal });
  let live = true;
  await repeat(10_000, signal, async () => {
    if (!live) return;
    try {
      const got = await ask("cluster", {}, signal);
      [view.nodes, view.notes, live] = [got.nodes, got.notes ?? [], got.live];
      fault("");
      draw();
    } catch (err) { if (!signal.aborted) fault(String(/** @type {Error} */ (err).message)); }
  });
}

/** @param {any} view @param {() => void} draw */
function body(view, draw) {
  /** @type {Node[]} */ const nodes = view.nodes;
  const count = (/** @type {string} */ s) => nodes.filter((n) => n.state === s).length;
  const spoken = nodes.filter((n) => n.state !== "silent");
  const sum = (/** @type {"supply" | "usage" | "demand"} */ k) => spoken.reduce((s, n) => s + n[k], 0);
  return html`
    <h1>Cluster</h1>
    ${view.notes.map((/** @type {string} */ n) => html`<p class="note">${n}</p>`)}
    <ul class="tiles" id="tiles">
      ${states.map((s) => html`<li><b class=${s}>${signs[s]} ${count(s)}</b>${s}</li>`)}
      <li><b>${cores(sum("usage"))}</b>cores of usage, of ${cores(sum("supply"))}</li>
      <li><b>${cores(sum("demand"))}</b>cores of demand</li>
    </ul>
    <h2>Nodes by price</h2>
    <canvas class="cells" role="img" aria-label=${cellsLabel(nodes)}></canvas>
    <p>${states.map((s) => html`<span class="key ${s}">${signs[s]} ${s}</span>`)} The bar in a cell grows with the price.</p>
    ${nodeTable(view, draw)}`;
}

/** @param {Node[]} nodes */
function cellsLabel(nodes) {
  const highest = nodes.reduce((/** @type {Node | null} */ d, n) => (n.price > (d?.price ?? 0) ? n : d), null);
  return `A cell for each of ${nodes.length} nodes. ` +
    (highest ? `The highest price is ${price(highest.price)}, on ${highest.node}.` : "No node has a price.") + " The table below has the figures.";
}

/** @param {any} view @param {() => void} draw */
function nodeTable(view, draw) {
  const wanted = view.filter.toLowerCase();
  const rows = view.nodes.filter((/** @type {Node} */ n) => n.node.toLowerCase().includes(wanted) || n.state === wanted);
  const by = (/** @type {any} */ a, /** @type {any} */ b) => (a[view.sort] < b[view.sort] ? -1 : a[view.sort] > b[view.sort] ? 1 : 0);
  rows.sort((/** @type {Node} */ a, /** @type {Node} */ b) => (view.down ? -1 : 1) * by(a, b) || (a.node < b.node ? -1 : 1));
  const pages = Math.max(1, Math.ceil(rows.length / pageRows));
  view.page = Math.min(view.page, pages - 1);
  /** @type {Node[]} */ const shown = rows.slice(view.page * pageRows, (view.page + 1) * pageRows);
  const sortBy = (/** @type {string} */ key) => () => {
    view.down = view.sort === key ? !view.down : key !== "node" && key !== "state";
    view.sort = key;
    view.page = 0;
    draw();
  };
  const turn = (/** @type {number} */ by) => () => { view.page += by; draw(); };
  const type = (/** @type {Event} */ e) => { view.filter = /** @type {HTMLInputElement} */ (e.target).value; view.page = 0; draw(); };
  return html`
    <h2>Table of nodes</h2>
    <div class="bar"><label>Filter by name or state <input id="filter" type="search" .value=${view.filter} @input=${type}></label>
      <button @click=${turn(-1)} ?disabled=${view.page === 0}>Previous</button>
      <button @click=${turn(1)} ?disabled=${view.page >= pages - 1}>Next</button>
      <span id="pages" aria-live="polite">Page ${view.page + 1} of ${pages}, ${rows.length} nodes</span></div>
    <div class="scroll" tabindex="0" role="region" aria-label="Nodes"><table id="nodes">
      <thead><tr>${columns.map((c) => html`<th scope="col" aria-sort=${c.key === view.sort ? (view.down ? "descending" : "ascending") : "none"}>
        <button @click=${sortBy(c.key)}>${c.name}${c.key === view.sort ? (view.down ? " ↓" : " ↑") : ""}</button></th>`)}</tr></thead>
      <tbody>${steady(document.querySelector("#nodes tbody"), shown, (n) => n.node).map((/** @type {Node} */ n) =>
        html`<tr>${columns.map((c) => html`<td>${c.show(n)}</td>`)}</tr>`)}</tbody></table></div>`;
}

/**
 * Draws the cells, the highest price first: shape and colour tell the state, and a bar the price.
 * @param {HTMLElement} at
 * @param {Node[]} nodes
 */
function drawCells(at, nodes) {
  const canvas = /** @type {HTMLCanvasElement} */ (at.querySelector("canvas.cells"));
  const size = nodes.length > 1000 ? 9 : nodes.length > 100 ? 14 : 26;
  const width = Math.max(size, Math.floor((at.clientWidth - 32) / size) * size), perRow = width / size;
  canvas.width = width;
  canvas.height = Math.max(1, Math.ceil(nodes.length / perRow)) * size;
  const draw = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const style = getComputedStyle(document.documentElement);
  const colours = Object.fromEntries(states.map((s) => [s, style.getPropertyValue(`--${s}`)]));
  const most = Math.max(1, ...nodes.map((n) => n.price));
  [...nodes].sort((a, b) => b.price - a.price).forEach((n, i) => {
    const x = (i % perRow) * size, y = Math.floor(i / perRow) * size, inner = size - 2;
    draw.strokeStyle = draw.fillStyle = colours[n.state];
    draw.strokeRect(x + 0.5, y + 0.5, inner, inner);
    const high = n.state === "full" ? inner : Math.ceil((inner * n.price) / most);
    draw.fillRect(x, y + inner - high, inner, high);
    if (n.state === "silent") {
      draw.beginPath();
      draw.moveTo(x, y); draw.lineTo(x + inner, y + inner); draw.moveTo(x + inner, y); draw.lineTo(x, y + inner);
      draw.stroke();
    }
  });
}
