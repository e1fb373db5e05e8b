// @ts-check
// What the market would have decided with other settings, or for other pods. Nothing is written.
import { html, render } from "../dist/lit-html.js";
import { ask } from "./api.js";
import { seconds } from "./format.js";

/** Changes of pods: the flag of the command, and what its value is. */
const kinds = [
  { flag: "priority", name: "have a PriorityClass of the value", unit: "" },
  { flag: "request", name: "request, in thousandths of a core,", unit: "m" },
  { flag: "max-cpu", name: "get no limit above, in thousandths of a core,", unit: "m" },
  { flag: "opt-out", name: "are not managed by MBCAS", unit: null },
];

/** @typedef {{flag: string, text: string}} Change */

class WhatIf {
  /** @param {HTMLElement} at @param {string} node @param {AbortSignal} signal @param {(text: string) => void} fault */
  constructor(at, node, signal, fault) {
    this.at = at; this.node = node; this.signal = signal; this.fault = fault;
    /** @type {number | null} */ this.reserve = null;
    /** @type {number | null} */ this.credits = null;
    this.off = false;
    /** @type {Change[]} */ this.changes = [];
    this.kind = kinds[0];
    /** @type {string[]} */ this.pods = [];
    /** @type {any} */ this.got = null;
    this.live = false; // and not the recording of a file
    this.deciding = false;
    this.again = false; // something else is chosen meanwhile
  }

  async run() {
    this.draw();
    await this.decide();
    try {
      this.live = (await ask("cluster", {}, this.signal)).live;
      const book = await ask("book", { node: this.node, at: Date.UTC(9999, 0) }, this.signal);
      this.pods = book.rows.filter((/** @type {any} */ r) => r.managed).map((/** @type {any} */ r) => r.pod).sort();
      this.draw();
    } catch (err) { if (!this.signal.aborted) this.fault(String(/** @type {Error} */ (err).message)); }
  }

  draw() { render(this.body(), this.at); }

  /** The changes as parameters of the question. */
  query() {
    /** @type {Record<string, string | number | string[]>} */ const query = { node: this.node };
    if (this.reserve !== null) query.reserve = this.reserve;
    if (this.credits !== null) query.credits = this.credits;
    if (this.off) query.off = 1;
    for (const { flag } of kinds) {
      const texts = this.changes.filter((c) => c.flag === flag).map((c) => c.text);
      if (texts.length) query[flag] = texts;
    }
    return query;
  }

  /** The same as a command. */
  command() {
    const quoted = (/** @type {string} */ text) => (/^[\w.,=/-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
    return ["kubectl mbcas what-if", ...(this.live ? ["--node", quoted(this.node)] : ["FILE"]), ...(this.reserve === null ? [] : ["--reserve", this.reserve]),
      ...(this.credits === null ? [] : ["--credits", this.credits]), ...(this.off ? ["--off"] : []),
      ...this.changes.flatMap((c) => [`--${c.flag}`, quoted(c.text)])].join(" ");
  }

  /** Asks for what is chosen. One question is asked at a time: while a slider is moved, the values between are left out. */
  async decide() {
    this.draw();
    this.again = true;
    if (this.deciding) return;
    this.deciding = true;
    while (this.again && !this.signal.aborted) {
      this.again = false;
      try {
        this.got = await ask("what-if", this.query(), this.signal);
        this.fault("");
      } catch (err) { if (!this.signal.aborted) this.fault(String(/** @type {Error} */ (err).message)); }
      if (!this.signal.aborted) this.draw();
    }
    this.deciding = false;
  }

  /** @param {Event} e */
  add(e) {
    e.preventDefault();
    const form = new FormData(/** @type {HTMLFormElement} */ (e.target)), pods = String(form.get("pods")).trim();
    if (!pods) return;
    this.changes.push({ flag: this.kind.flag, text: this.kind.unit === null ? pods : `${pods}=${form.get("value")}${this.kind.unit}` });
    this.decide();
  }

  /** @param {number} i */
  remove(i) {
    this.changes.splice(i, 1);
    this.decide();
  }

  body() {
    return html`<h1>What if</h1>
      <p>What the market of node ${this.node} would have decided on the counters of this recording with other settings. The counters stay as
        they were: what the pods would have done with these limits is not played.</p>
      ${this.settings()}${this.podChanges()}${this.got ? this.comparison() : html`<p>Deciding.</p>`}`;
  }

  settings() {
    const value = (/** @type {Event} */ e) => Number(/** @type {HTMLInputElement} */ (e.target).value);
    const reserve = this.reserve === null ? "as recorded" : `${Math.round(this.reserve * 100)}%`;
    const credits = this.credits === null ? "as recorded" : `×${this.credits}`;
    return html`<div class="bar"><label class="grow">Reserve, share of the allocatable CPU that is not sold
        <input id="reserve" type="range" min="0" max="50" .value=${String(Math.round((this.reserve ?? 0.1) * 100))} aria-valuetext=${reserve}
          @input=${(/** @type {Event} */ e) => { this.reserve = value(e) / 100; this.decide(); }}></label><output id="chosen">${reserve}</output></div>
      <div class="bar"><label class="grow">Credits, highest factor on the budget of a pod that used less than its share before
        <input id="credits" type="range" min="1" max="10" step="0.5" .value=${String(this.credits ?? 1)} aria-valuetext=${credits}
          @input=${(/** @type {Event} */ e) => { this.credits = value(e); this.decide(); }}></label><output>${credits}</output></div>
      <div class="bar"><label><input id="off" type="checkbox" .checked=${this.off}
          @change=${(/** @type {Event} */ e) => { this.off = /** @type {HTMLInputElement} */ (e.target).checked; this.decide(); }}>
        MBCAS is off: every pod has its declared limits</label></div>`;
  }

  podChanges() {
    const choose = (/** @type {Event} */ e) => {
      this.kind = kinds.find((k) => k.flag === /** @type {HTMLSelectElement} */ (e.target).value) ?? kinds[0];
      this.draw();
    };
    return html`<form class="bar" id="change" @submit=${(/** @type {Event} */ e) => this.add(e)}>
        <label>Pods <input name="pods" list="pod-names" required placeholder="namespace/name, * for any characters"></label>
        <datalist id="pod-names">${this.pods.map((p) => html`<option value=${p}></option>`)}</datalist>
        <label>that <select name="kind" @change=${choose}>${kinds.map((k) => html`<option value=${k.flag}>${k.name}</option>`)}</select></label>
        ${this.kind.unit === null ? "" : html`<label>Value <input name="value" type="number" required step="1" min=${this.kind.unit ? "1" : "-2147483648"}></label>`}
        <button>Add</button></form>
      <ul id="changes">${this.changes.map((c, i) => html`<li><code>--${c.flag} ${c.text}</code>
        <button @click=${() => this.remove(i)} aria-label=${`Remove --${c.flag} ${c.text}`}>Remove</button></li>`)}</ul>`;
  }

  comparison() {
    const got = this.got, pods = got.pods ?? [];
    const row = (/** @type {string[]} */ ...cells) => html`<tr>${cells.map((c) => html`<td>${c}</td>`)}</tr>`;
    return html`<div class="scroll" tabindex="0" role="region" aria-label="Comparison"><table id="comparison">
      <caption>Means over ${seconds(got.covered)}</caption>
      <thead><tr><th scope="col">Market</th><th scope="col">As it was</th><th scope="col">Changed</th></tr></thead><tbody>
      ${row("Supply", got.before.supply, got.after.supply)}${row("Price", got.before.price.toFixed(3), got.after.price.toFixed(3))}
      ${row("Time with a price", seconds(got.before.scarce), seconds(got.after.scarce))}
      ${row("Withheld of what pods demand", seconds(got.before.withheld), seconds(got.after.withheld))}</tbody></table></div>
    ${this.changes.length && !got.matched ? html`<p class="note">No managed pod of the recording is one of those named.</p>` : ""}
    <h2>Pods whose limits differ</h2>
    ${pods.length === 0 ? html`<p id="equal">No limit would have been another.</p>` : html`
    <div class="scroll" tabindex="0" role="region" aria-label="Pods"><table id="pods">
      <caption>Limits are means; withheld is demand above the limit, in seconds of a core. The pod that loses most comes first.</caption>
      <thead><tr><th scope="col">Pod</th><th scope="col">Limit as it was</th><th scope="col">Changed</th>
        <th scope="col">Withheld as it was</th><th scope="col">Changed</th></tr></thead>
      <tbody>${pods.map((/** @type {any} */ p) => row(p.pod, p.before.limit, p.after.limit, seconds(p.before.withheld),
        p.after.optedOut ? "–" : seconds(p.after.withheld)))}</tbody></table></div>`}
    <p>The same by command${Object.keys(this.query()).length > 1 ? "" : ", which needs a change"}: <code id="command">${this.command()}</code></p>`;
  }
}

/**
 * @param {HTMLElement} at
 * @param {string} node
 * @param {AbortSignal} signal
 * @param {(text: string) => void} fault
 */
export function showWhatIf(at, node, signal, fault) { new WhatIf(at, node, signal, fault).run(); }
