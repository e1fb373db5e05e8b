// @ts-check
// Chooses the view by the address.
import { html, render } from "../dist/lit-html.js";
import { takeToken } from "./api.js";
import { showBenefit } from "./benefit.js";
import { showCluster } from "./cluster.js";
import { showIncident, showNode } from "./node.js";
import { showPod } from "./pod.js";
import { showWhatIf } from "./whatif.js";

const main = /** @type {HTMLElement} */ (document.getElementById("main"));
const trail = /** @type {HTMLElement} */ (document.getElementById("trail"));
const status = /** @type {HTMLElement} */ (document.getElementById("status"));

/** Says what failed; empty: nothing. @param {string} text */
const fault = (text) => { status.textContent = text; };

let leave = new AbortController();
let first = true;

/** The parts of the address; null: they cannot be read, as of an address that was cut off. */
function parts() {
  try { return location.hash.replace(/^#\//, "").split("/").map(decodeURIComponent); } catch { return null; }
}

function go() {
  leave.abort();
  leave = new AbortController();
  fault("");
  const read = parts();
  const [view = "", node = "", pod = ""] = read ?? ["unreadable"];
  const at = document.createElement("div");
  main.replaceChildren(at);
  const steps = [["Cluster", "#/"]];
  if (node) steps.push([node, `#/node/${encodeURIComponent(node)}`]);
  if (view === "pod") steps.push([pod, `#/pod/${encodeURIComponent(node)}/${encodeURIComponent(pod)}`]);
  const titles = /** @type {Record<string, string>} */ ({ "what-if": "What if", benefit: "Benefit and cost", incident: "Incident" });
  if (!read) steps.push(["Address", location.hash]);
  if (titles[view]) steps.push([titles[view], location.hash]);
  render(html`<ol>${steps.map(([name, to], i) => html`<li>${i === steps.length - 1
    ? html`<span aria-current="page">${name}</span>` : html`<a href=${to}>${name}</a>`}</li>`)}</ol>`, trail);
  document.title = `${steps[steps.length - 1][0]} – MBCAS`;
  if (!first) main.focus();
  first = false;
  const signal = leave.signal;
  if (!read) {
    render(html`<h1>This address cannot be read</h1><p id="unreadable">In ${location.hash} a % does not begin the code of a character, such as %2F.
      Open <a href="#/">the cluster</a>, and choose a node there.</p>`, at);
  } else if (view === "node") showNode(at, node, signal, fault);
  else if (view === "pod") showPod(at, node, pod, signal, fault);
  else if (view === "incident") showIncident(at, node, Number(pod), signal, fault);
  else if (view === "benefit") showBenefit(at, node, signal, fault);
  else if (view === "what-if") showWhatIf(at, node, signal, fault);
  else showCluster(at, signal, fault);
}

takeToken();
document.querySelector(".skip")?.addEventListener("click", (e) => { // its address is no view
  e.preventDefault();
  main.focus();
});
addEventListener("hashchange", go);
go();
