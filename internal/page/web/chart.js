// @ts-check
// Charts over time: a uPlot, a key with dashes, and a table with the same figures.
import uPlot from "../dist/uPlot.esm.js";
import { html, svg } from "../dist/lit-html.js";
import { clock } from "./format.js";
import { drawn } from "./timing.js";

/**
 * @typedef {{key: string, name: string, colour: number, dash: number[], show: (v: number | null) => string}} Line
 * @typedef {{id: string, title: string, lines: Line[], step?: boolean}} Spec
 * @typedef {{at: number[], [key: string]: any}} Series
 */

// Okabe and Ito's colours, which differ also for the colour-blind, as light and dark need them.
const palette = [["#0072b2", "#56b4e9"], ["#a44500", "#e69f00"], ["#00664b", "#2fd0a5"], ["#8f3f72", "#f0a3cf"], ["#3a3a3a", "#f0e442"]];
export const dark = matchMedia("(prefers-color-scheme: dark)");
/** @param {number} i */
const colour = (i) => palette[i][dark.matches ? 1 : 0];

/** A chart that lives in an element with the class chart. */
export class Chart {
  /** @param {Spec} spec @param {(index: number) => void} picked */
  constructor(spec, picked) {
    this.spec = spec;
    this.picked = picked;
    this.page = 0;
    /** @type {any} */ this.plot = null;
    /** @type {Series | null} */ this.series = null;
  }

  /** @param {Series} series @param {HTMLElement} root @param {number} index of the cursor */
  draw(series, root, index) {
    const element = /** @type {HTMLElement} */ (root.querySelector(`#${this.spec.id} .chart`));
    if (!element) return;
    const data = [series.at.map((t) => t / 1000), ...this.spec.lines.map((l) => series[l.key])];
    const width = Math.max(200, element.clientWidth);
    if (!this.plot || this.dark !== dark.matches || this.plot.root.parentElement !== element) {
      this.plot?.destroy();
      this.dark = dark.matches;
      this.plot = new uPlot(this.options(width), data, element);
      drawn(`${this.spec.id} drawn`);
      this.plot.over.addEventListener("click", () => { if (this.plot.cursor.idx != null) this.picked(this.plot.cursor.idx); });
    } else if (this.series !== series || this.end !== series.at.at(-1)) {
      this.plot.setData(data);
    }
    if (this.plot.width !== width) this.plot.setSize({ width, height: 170 });
    this.series = series;
    this.end = series.at.at(-1); // its length stays once the longest is reached
    this.index = index;
    this.plot.redraw(false);
  }

  /** @param {number} width */
  options(width) {
    const style = getComputedStyle(document.documentElement);
    const text = style.getPropertyValue("--soft"), line = style.getPropertyValue("--line");
    const axis = { stroke: text, grid: { stroke: line, width: 0.5 }, ticks: { stroke: line } };
    return {
      width, height: 170, legend: { show: false }, cursor: { drag: { x: false, y: false }, points: { show: false } },
      tzDate: (/** @type {number} */ t) => uPlot.tzDate(new Date(t * 1000), "UTC"),
      axes: [{ ...axis, space: 80, values: (/** @type {any} */ _, /** @type {number[]} */ at) => at.map((t) => clock(t * 1000)) }, { ...axis, size: 64 }],
      scales: { y: { range: (/** @type {any} */ _, /** @type {number} */ low, /** @type {number} */ high) => /** @type {[number, number]} */ ([0, Math.max(1e-3, (high ?? 1) * 1.05)]) } },
      series: [{}, ...this.spec.lines.map((l) => ({ label: l.name, stroke: colour(l.colour), width: 2, dash: l.dash, points: { show: false } }))],
      hooks: { draw: [(/** @type {any} */ u) => this.mark(u)] },
    };
  }

  /** Draws the time under the scrubber. @param {any} u */
  mark(u) {
    const t = this.series?.at[this.index ?? -1];
    if (t === undefined) return;
    const x = u.valToPos(t / 1000, "x", true);
    u.ctx.save();
    u.ctx.strokeStyle = getComputedStyle(document.documentElement).getPropertyValue("--text");
    u.ctx.setLineDash([]);
    u.ctx.lineWidth = devicePixelRatio;
    u.ctx.beginPath();
    u.ctx.moveTo(x, u.bbox.top);
    u.ctx.lineTo(x, u.bbox.top + u.bbox.height);
    u.ctx.stroke();
    u.ctx.restore();
  }

  /** @param {Series} series @param {() => void} redraw */
  template(series, redraw) {
    const { id, title, lines } = this.spec;
    return html`<section id=${id} aria-label=${title}><h2>${title}</h2>
      <p>${lines.map((l) => html`<span class="key">${svg`<svg width="34" height="8" aria-hidden="true"><line x1="0" y1="4" x2="34" y2="4"
        stroke=${colour(l.colour)} stroke-width="3" stroke-dasharray=${l.dash.join(" ")}></line></svg>`}${l.name}</span>`)}</p>
      <div class="chart" role="img" aria-label=${`${title} over time; the table below has the figures.`}></div>
      <details><summary>${title}: table</summary>${this.table(series, redraw)}</details></section>`;
  }

  /** @param {Series} series @param {() => void} redraw */
  table(series, redraw) {
    const rows = 25, pages = Math.max(1, Math.ceil(series.at.length / rows));
    this.page = Math.min(this.page, pages - 1);
    const turn = (/** @type {number} */ by) => () => { this.page += by; redraw(); };
    const shown = [...series.at.keys()].slice(this.page * rows, (this.page + 1) * rows);
    return html`<div class="bar"><button @click=${turn(-1)} ?disabled=${this.page === 0}>Earlier</button>
      <button @click=${turn(1)} ?disabled=${this.page >= pages - 1}>Later</button><span>Page ${this.page + 1} of ${pages}</span></div>
      <div class="scroll" tabindex="0" role="region" aria-label=${`${this.spec.title}, figures`}><table>
      <thead><tr><th scope="col">Time (UTC)</th>${this.spec.lines.map((l) => html`<th scope="col">${l.name}</th>`)}</tr></thead>
      <tbody>${shown.map((i) => html`<tr><td>${clock(series.at[i])}</td>
        ${this.spec.lines.map((l) => html`<td>${l.show(series[l.key][i])}</td>`)}</tr>`)}</tbody></table></div>`;
  }

  destroy() { this.plot?.destroy(); }
}
