// @ts-check
// What the views of a node and of a pod share: a series that goes on, the scrubber, and the events.
import { html } from "../dist/lit-html.js";
import { ask, repeat } from "./api.js";
import { clock } from "./format.js";

const firstPart = 120_000; // ms
const eventsShown = 60;
const mostRounds = 7200; // two hours of one a second

/** @typedef {{at: string, pod?: string, text: string}} Entry */

/** A series with a time that the reader has chosen. */
export class Timeline {
  /**
   * @param {string} what "node" or "pod"
   * @param {Record<string, string | number>} query
   * @param {AbortSignal} signal
   * @param {(text: string) => void} fault
   * @param {() => Promise<void> | void} changed is called after the series or the time has changed
   * @param {boolean} [window] the query is about a window that does not go on
   */
  constructor(what, query, signal, fault, changed, window = false) {
    this.window = window;
    this.what = what; this.query = query; this.signal = signal; this.fault = fault; this.changed = changed;
    /** @type {any} */ this.series = null;
    this.whole = false; // not only its end
    this.live = true; // it goes on
    this.index = 0;
    this.follows = true;
    this.speed = 0;
    /** @type {string | null} */ this.scrolledTo = null;
    /** @type {AbortController | undefined} */ this.playing = undefined;
    /** @type {(Entry & {ms: number})[]} */ this.entries = [];
    /** @type {string[]} */ this.notes = [];
    this.dropped = 0; // what was before this time
  }

  get time() { return this.series?.at[this.index] ?? 0; }

  async run() {
    let turns = 0;
    await repeat(1000, this.signal, async () => {
      if (!this.live && this.whole) return;
      try {
        await this.read();
        if (turns++ % 10 === 0) { // the sentences take the server longer than the charts
          await this.readEvents();
          this.live = !this.window && (await ask("cluster", {}, this.signal)).live;
          await this.changed();
        }
        this.fault("");
      } catch (err) { if (!this.signal.aborted) this.fault(String(/** @type {Error} */ (err).message)); }
    });
  }

  /** Reads what is new. At first the end is shown, and then the whole in its place. */
  async read() {
    if (this.whole) {
      this.add(await ask(this.what, { ...this.query, after: this.series.at[this.series.at.length - 1] }, this.signal));
      await this.changed();
      return;
    }
    if (!this.series && !this.window) {
      this.add(await ask(this.what, { ...this.query, last: firstPart }, this.signal));
      await this.changed();
    }
    const whole = await ask(this.what, this.query, this.signal), time = this.time || Number(this.query.at ?? 0);
    if (time && !this.series) this.follows = false;
    this.series = whole;
    this.whole = this.window || whole.at.length > 0;
    this.index = this.follows ? whole.at.length - 1 : Math.max(0, whole.at.findLastIndex((/** @type {number} */ t) => t <= time));
    await this.changed();
  }

  /** Reads the sentences that are new, and drops those of before the series. */
  async readEvents() {
    const last = this.entries.at(-1);
    const told = await ask("events", last ? { ...this.query, after: last.ms } : this.query, this.signal);
    const entries = told.entries.map((/** @type {Entry} */ e) => ({ ...e, ms: Date.parse(e.at) }));
    this.entries = this.entries.concat(entries).filter((e) => e.ms >= this.dropped);
    this.notes = told.notes;
  }

  /** Appends what is new, and drops the oldest. @param {any} got */
  add(got) {
    if (!this.series) this.series = got;
    else for (const key of Object.keys(got)) if (Array.isArray(got[key])) this.series[key].push(...got[key]);
    const over = this.series.at.length - mostRounds;
    if (over > 0) {
      for (const key of Object.keys(this.series)) if (Array.isArray(this.series[key])) this.series[key].splice(0, over);
      this.index = Math.max(0, this.index - over);
      this.dropped = this.series.at[0];
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
    this.playing?.abort();
    this.speed = speed;
    this.changed();
    if (speed === 0) return;
    const playing = this.playing = new AbortController();
    repeat(1000, AbortSignal.any([this.signal, playing.signal]), async () => {
      const to = this.time + 1000 * speed, next = this.series.at.findLastIndex((/** @type {number} */ t) => t <= to);
      if (this.index >= this.series.at.length - 1) { playing.abort(); this.speed = 0; this.changed(); return; }
      this.pick(Math.max(this.index + 1, next));
    });
  }

  /** @param {string} reads the figures under the cursor */
  scrubber(reads) {
    const step = (/** @type {Event} */ e) => this.pick(Number(/** @type {HTMLInputElement} */ (e.target).value));
    return html`<div class="bar"><label class="grow">Time <input id="time" type="range" min="0" max=${this.series.at.length - 1}
        .value=${String(this.index)} aria-valuetext=${`${clock(this.time)} UTC`} @input=${step}></label>
      <button @click=${() => this.pick(this.index - 1)}>Step back</button><button @click=${() => this.pick(this.index + 1)}>Step on</button>
      ${[1, 10].map((s) => html`<button aria-pressed=${this.speed === s} @click=${() => this.play(this.speed === s ? 0 : s)}>Play ×${s}</button>`)}</div>
      <p class="cursor" id="cursor" aria-live=${this.follows && this.live ? "off" : "polite"}>${clock(this.time)} UTC: ${reads}</p>`;
  }

  /** Scrolls the sentences to the marked one, once for each. @param {HTMLElement} root */
  scrollEvents(root) {
    const list = root.querySelector("#events"), now = /** @type {HTMLElement | null} */ (root.querySelector("#events .now"));
    if (!list || !now || now.textContent === this.scrolledTo) return;
    this.scrolledTo = now.textContent;
    list.scrollTop += now.getBoundingClientRect().top - list.getBoundingClientRect().top - list.clientHeight / 2;
  }

  /** The sentences around the time under the cursor; the last one before it is marked. */
  events() {
    let now = -1;
    this.entries.forEach((e, i) => { if (e.ms <= this.time) now = i; });
    const from = Math.max(0, Math.min(now - eventsShown / 2, this.entries.length - eventsShown));
    const shown = this.entries.slice(from, from + eventsShown);
    return html`<h2 id="events-title">What happened</h2>${this.notes.map((n) => html`<p class="note">${n}</p>`)}
      ${shown.length < this.entries.length ? html`<p>${shown.length} of ${this.entries.length} sentences, around the time above.</p>` : ""}
      <ol class="events" id="events" tabindex="0" aria-labelledby="events-title">${shown.map((e, i) => html`
        <li class=${from + i === now ? "now" : ""}><button @click=${() => this.pickTime(e.ms)}>${clock(e.ms)}</button>${
          e.pod ? `${e.pod}: ` : ""}${e.text}${from + i === now ? " (last before the time above)" : ""}</li>`)}</ol>`;
  }
}
