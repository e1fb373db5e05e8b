// @ts-check
// What MBCAS brings and costs on a node, as the command report has it.
import { html, render } from "../dist/lit-html.js";
import { ask, repeat } from "./api.js";
import { moment, seconds } from "./format.js";

const columns = [
  { name: "Throttled", of: (/** @type {any} */ f) => seconds(f.throttledWhileIdle + f.throttledWhileScarce) },
  { name: "While CPU was idle", of: (/** @type {any} */ f) => seconds(f.throttledWhileIdle) },
  { name: "Beyond declared", of: (/** @type {any} */ f) => seconds(f.beyondDeclared) },
  { name: "Delayed", of: (/** @type {any} */ f) => seconds(f.delayed) },
  { name: "Avoided", of: (/** @type {any} */ f) => seconds(f.avoided) },
  { name: "Avoidable", of: (/** @type {any} */ f) => seconds(f.avoidable) },
  { name: "Withheld", of: (/** @type {any} */ f) => seconds(f.withheld) },
  { name: "Below declared", of: (/** @type {any} */ f) => seconds(f.belowDeclared) },
  { name: "Freed", of: (/** @type {any} */ f) => seconds(f.freed) },
  { name: "Raises", of: (/** @type {any} */ f) => f.raises },
  { name: "Lowers", of: (/** @type {any} */ f) => f.lowers },
  { name: "Changes", of: (/** @type {any} */ f) => f.changes },
];

/**
 * @param {HTMLElement} at
 * @param {string} node
 * @param {AbortSignal} signal
 * @param {(text: string) => void} fault
 */
export async function showBenefit(at, node, signal, fault) {
  let live = true, shown = false;
  await repeat(10_000, signal, async () => {
    if (!live && shown) return;
    try {
      const got = await ask("benefit", { node }, signal);
      live = (await ask("cluster", {}, signal)).live;
      shown = true;
      fault("");
      render(body(node, got), at);
    } catch (err) { if (!signal.aborted) fault(String(/** @type {Error} */ (err).message)); }
  });
}

/** @param {string} node @param {any} got */
function body(node, got) {
  const row = (/** @type {any} */ name, /** @type {any} */ f) => html`<tr><td>${name}</td>${columns.map((c) => html`<td>${c.of(f)}</td>`)}</tr>`;
  const link = (/** @type {any} */ p) => {
    const pod = `${p.Namespace}/${p.Name}`;
    return html`<a href=${`#/pod/${encodeURIComponent(node)}/${encodeURIComponent(pod)}`}>${pod}</a>`;
  };
  return html`<h1>Benefit and cost</h1>
    <p id="covered">Node ${node}, ${moment(Date.parse(got.from))} to ${moment(Date.parse(got.to))} UTC: ${seconds(got.covered)} with counters, and
      CPU had a price for ${seconds(got.scarce)}.</p>
    ${got.notes.map((/** @type {string} */ n) => html`<p class="note">${n}</p>`)}
    <div class="scroll" tabindex="0" role="region" aria-label="Benefit and cost by pod"><table id="benefit">
      <thead><tr><th scope="col">Pod</th>${columns.map((c) => html`<th scope="col">${c.name}</th>`)}</tr></thead>
      <tbody>${got.pods.map((/** @type {any} */ p) => row(link(p), p))}</tbody>
      <tfoot>${row("all", got.sum)}</tfoot></table></div>
    <p>Measured: pods were throttled, a part of it while CPU was idle; they used CPU time beyond their declared limits, and CPU time while a limit
      was exhausted, so that work was delayed.</p>
    <p>Estimated: demand above the limits in force was withheld. Of the delayed work, that much was avoidable by the limits decided; higher limits
      in force avoided that much. In the time of below declared the limit decided was below the declared one. Enforcing the limits of capped
      pods would have freed that much CPU time for others.</p>`;
}
