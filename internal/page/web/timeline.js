// @ts-check
// What the views of a node and of a pod share: a series that goes on, the scrubber, and the events.
import { html } from "../dist/lit-html.js";
import { ask, repeat } from "./api.js";
import { clock } from "./format.js";

/** A series with a time that the reader has chosen. */
export class Timeline {
  /**
   * @param {string} what "node" or "pod"
   * @param {Record<string, string>} query
   * @param {AbortSignal} signal
   * @param {(text: string) => void} fault
   * @param {() => Promise<void> | void} changed is called after the series or the time has changed
   */
  constructor(what, query, signal, fault, changed) {
    Object.assign(this, { what, query, signal, fault, changed });
    this.what = what; this.query = query; this.signal = signal; this.fault = fault; this.changed = changed;
    /** @type {any} */ this.series = null;
    this.index = 0;
    this.follows = true;
    this.speed = 0;
    /** @type {{at: string, pod?: string, text: string}[]} */ this.entries = [];
    /** @type {string[]} */ this.notes = [];
  }

  get time() { return this.series?.at[this.index] ?? 0; }

  async run() {
    let live = true, turns = 0;
    await repeat(2000, this.signal, async () => {
      if (!live && this.series) return;
      try {
        const at = this.series?.at ?? [];
        const after = at.length ? { after: at[at.length - 1] } : {};
        const got = await ask(this.what, { ...this.query, ...after }, this.signal);
        this.add(got);
        await this.changed(); // before the sentences, which take the server longer
        if (turns++ % 5 === 0) {
          const told = await ask("events", this.query, this.signal);
          [this.entries, this.notes] = [told.entries, told.notes];
          live = (await ask("cluster", {}, this.signal)).live;
          await this.changed();
        }
        this.fault("");
      } catch (err) { if (!this.signal.aborted) this.fault(String(/** @type {Error} */ (err).message)); }
    });
  }

  /** Appends what is new; of half an hour no more is kept. @param {any} got */
  add(got) {
    if (!this.series) this.series = got;
    else for (const key of Object.keys(got)) if (Array.isArray(got[key])) this.series[key].push(...got[key]);
    const over = this.series.at.length - 7200;
    if (over > 0) {
      for (const key of Object.keys(this.series)) if (Array.isArray(this.series[key])) this.series[key].splice(0, over);
      this.index = Math.max(0, this.index - over);
    }
    if (this.follows) this.index = Math.max(0, this.series.at.length - 1);
  }

  /** @param {number} index */
  pick(index) {
    const last = this.series.at.length - 1;
    this.index = Math.max(0, Math.min(last, index));
    this.follows = this.index === last;
    this.changed();
  }

  /** @param {number} ms */
  pickTime(ms) {
    const i = this.series.at.findLastIndex((/** @type {number} */ t) => t <= ms);
    this.pick(Math.max(0, i));
  }

  /** Goes on by itself, so many seconds of the recording a second. @param {number} speed 0: stop */
  play(speed) {
    const begin = this.speed === 0 && speed > 0;
    this.speed = speed;
    this.changed();
    if (!begin) return;
    const alone = new AbortController();
    this.signal.addEventListener("abort", () => alone.abort(), { once: true });
    repeat(1000, alone.signal, async () => {
      if (this.speed === 0 || this.index >= this.series.at.length - 1) { this.speed = 0; alone.abort(); this.changed(); return; }
      this.pickTime(this.time + 1000 * this.speed);
    });
  }

  /** @param {string} reads the figures under the cursor */
  scrubber(reads) {
    const step = (/** @type {Event} */ e) => this.pick(Number(/** @type {HTMLInputElement} */ (e.target).value));
    return html`<div class="bar"><label class="grow">Time <input id="time" type="range" min="0" max=${this.series.at.length - 1}
        .value=${String(this.index)} aria-valuetext=${`${clock(this.time)} UTC`} @input=${step}></label>
      <button @click=${() => this.pick(this.index - 1)}>Step back</button><button @click=${() => this.pick(this.index + 1)}>Step on</button>
      ${[1, 10].map((s) => html`<button aria-pressed=${this.speed === s} @click=${() => this.play(this.speed === s ? 0 : s)}>Play ×${s}</button>`)}</div>
      <p class="cursor" id="cursor" aria-live="polite">${clock(this.time)} UTC: ${reads}</p>`;
  }

  /** The sentences; that of the time under the cursor is marked. */
  events() {
    let now = -1;
    this.entries.forEach((e, i) => { if (Date.parse(e.at) < this.time + 1) now = i; });
    return html`<h2 id="events-title">What happened</h2>${this.notes.map((n) => html`<p class="note">${n}</p>`)}
      <ol class="events" id="events" tabindex="0" aria-labelledby="events-title">${this.entries.map((e, i) => html`
        <li class=${i === now ? "now" : ""}><button @click=${() => this.pickTime(Date.parse(e.at))}>${clock(Date.parse(e.at))}</button>${
          e.pod ? `${e.pod}: ` : ""}${e.text}${i === now ? " (last before the time above)" : ""}</li>`)}</ol>`;
  }
}
