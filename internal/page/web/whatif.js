// @ts-check
// What the market would have decided with another reserve. The server decides; nothing is written.
import { html, render } from "../dist/lit-html.js";
import { ask } from "./api.js";
import { seconds } from "./format.js";

/**
 * @param {HTMLElement} at
 * @param {string} node
 * @param {AbortSignal} signal
 * @param {(text: string) => void} fault
 */
export function showWhatIf(at, node, signal, fault) {
  /** @type {any} */ let got = null;
  let reserve = 0.1, asked = 0;
  const draw = () => render(body(), at);
  const decide = async () => {
    const mine = ++asked;
    try {
      const answer = await ask("what-if", { node, reserve }, signal);
      if (mine !== asked) return; // another reserve is chosen
      got = answer;
      fault("");
      draw();
    } catch (err) { if (!signal.aborted) fault(String(/** @type {Error} */ (err).message)); }
  };
  const choose = (/** @type {Event} */ e) => { reserve = Number(/** @type {HTMLInputElement} */ (e.target).value) / 100; draw(); decide(); };
  const row = (/** @type {string} */ name, /** @type {string} */ before, /** @type {string} */ after) =>
    html`<tr><td>${name}</td><td>${before}</td><td>${after}</td></tr>`;
  const body = () => html`<h1>What if</h1>
    <p>What the market of node ${node} would have decided on the counters of this recording with another reserve. The counters stay as they were:
      what the pods would have done with these limits is not played.</p>
    <div class="bar"><label class="grow">Reserve, share of the allocatable CPU that is not sold
      <input id="reserve" type="range" min="0" max="50" .value=${String(Math.round(reserve * 100))} aria-valuetext=${`${Math.round(reserve * 100)}%`}
        @input=${choose}></label><output id="chosen">${Math.round(reserve * 100)}%</output></div>
    ${got ? html`<div class="scroll" tabindex="0" role="region" aria-label="Comparison"><table id="comparison">
      <caption>Means over ${seconds(got.covered)}</caption>
      <thead><tr><th scope="col">Market</th><th scope="col">As it was</th><th scope="col">Changed</th></tr></thead><tbody>
      ${row("Supply", got.before.supply, got.after.supply)}${row("Price", got.before.price.toFixed(3), got.after.price.toFixed(3))}
      ${row("Time with a price", seconds(got.before.scarce), seconds(got.after.scarce))}
      ${row("Withheld of what pods demand", seconds(got.before.withheld), seconds(got.after.withheld))}</tbody></table></div>
    <h2>Pods whose limits differ</h2>
    ${(got.pods ?? []).length === 0 ? html`<p id="equal">No limit would have been another.</p>` : html`
    <div class="scroll" tabindex="0" role="region" aria-label="Pods"><table id="pods">
      <thead><tr><th scope="col">Pod</th><th scope="col">Limit as it was</th><th scope="col">Limit changed</th></tr></thead>
      <tbody>${got.pods.map((/** @type {any} */ p) => row(p.pod, p.before.limit, p.after.limit))}</tbody></table></div>`}
    <p>The same by command: <code id="command">kubectl mbcas what-if --node ${node} --reserve ${reserve}</code></p>` : ""}`;
  draw();
  decide();
}
