// @ts-check
// A pod over time, and why its limit is what it is at the time of the scrubber.
import { html, render } from "../dist/lit-html.js";
import { ask } from "./api.js";
import { Chart, dark } from "./chart.js";
import { inForce, milli, percent } from "./format.js";
import { Timeline } from "./timeline.js";

/** @type {import("./chart.js").Line[]} */
const amounts = [
  { key: "inForce", name: "Limit in force", colour: 4, dash: [], show: milli },
  { key: "limit", name: "Limit decided", colour: 2, dash: [10, 3, 2, 3], show: milli },
  { key: "usage", name: "Usage", colour: 0, dash: [8, 4], show: milli },
  { key: "demand", name: "Demand", colour: 1, dash: [2, 3], show: milli },
];
const throttled = [{ key: "throttled", name: "Throttled", colour: 3, dash: [], show: percent }];

/**
 * @param {HTMLElement} at
 * @param {string} node
 * @param {string} pod
 * @param {AbortSignal} signal
 * @param {(text: string) => void} fault
 */
export function showPod(at, node, pod, signal, fault) {
  const pick = (/** @type {number} */ i) => line.pick(i);
  const charts = [new Chart({ id: "cpu", title: "CPU in thousandths of a core", lines: amounts }, pick),
    new Chart({ id: "throttling", title: "Throttled share of periods", lines: throttled }, pick)];
  /** @type {string[]} */ let why = [];
  let asked = 0;
  const draw = () => {
    render(body(pod, line, charts, why, draw), at);
    for (const c of charts) c.draw(line.series, at, line.index);
    line.scrollEvents(at);
  };
  const line = new Timeline("pod", { node, pod }, signal, fault, async () => {
    draw();
    const mine = ++asked;
    try {
      const got = await ask("explain", { node, pod, at: line.time }, signal);
      if (mine !== asked) return; // the reader has gone on
      why = got.sentences;
    } catch (err) {
      if (signal.aborted || mine !== asked) return;
      why = [String(/** @type {Error} */ (err).message)];
    }
    draw();
  });
  signal.addEventListener("abort", () => charts.forEach((c) => c.destroy()), { once: true });
  dark.addEventListener("change", () => { if (line.series) draw(); }, { signal });
  line.run();
}

/** @param {string} pod @param {Timeline} line @param {Chart[]} charts @param {string[]} why @param {() => void} draw */
function body(pod, line, charts, why, draw) {
  const s = line.series, i = line.index;
  if (!s.at.length) return html`<h1>Pod ${pod}</h1><p>The recording has no round yet.</p>`;
  const reads = `limit ${inForce(s.inForce[i], s.unlimited[i])}, usage ${milli(s.usage[i])}, demand ${milli(s.demand[i])}, throttled ${percent(s.throttled[i])}.`;
  return html`<h1>Pod ${pod}</h1>${line.scrubber(reads)}
    <h2>Why</h2><ul id="why">${why.map((w) => html`<li>${w}</li>`)}</ul>
    ${charts.map((c) => c.template(s, draw))}${line.events()}`;
}
