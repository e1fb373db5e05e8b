// @ts-check
// Chooses the view by the address.
import { html, render } from "../dist/lit-html.js";
import { takeToken } from "./api.js";
import { showCluster } from "./cluster.js";
import { showNode } from "./node.js";
import { showPod } from "./pod.js";
import { showWhatIf } from "./whatif.js";

const main = /** @type {HTMLElement} */ (document.getElementById("main"));
const trail = /** @type {HTMLElement} */ (document.getElementById("trail"));
const status = /** @type {HTMLElement} */ (document.getElementById("status"));

/** Says what failed; empty: nothing. @param {string} text */
const fault = (text) => { status.textContent = text; };

let leave = new AbortController();
let first = true;

function go() {
  if (location.hash === "#main") { main.focus(); return; }
  leave.abort();
  leave = new AbortController();
  fault("");
  const [view = "", node = "", pod = ""] = location.hash.replace(/^#\//, "").split("/").map(decodeURIComponent);
  const at = document.createElement("div");
  main.replaceChildren(at);
  const steps = [["Cluster", "#/"]];
  if (node) steps.push([node, `#/node/${encodeURIComponent(node)}`]);
  if (pod) steps.push([pod, `#/pod/${encodeURIComponent(node)}/${encodeURIComponent(pod)}`]);
  if (view === "what-if") steps.push(["What if", location.hash]);
  render(html`<ol>${steps.map(([name, to], i) => html`<li>${i === steps.length - 1
    ? html`<span aria-current="page">${name}</span>` : html`<a href=${to}>${name}</a>`}</li>`)}</ol>`, trail);
  document.title = `${steps[steps.length - 1][0]} – MBCAS`;
  if (!first) main.focus();
  first = false;
  const signal = leave.signal;
  if (view === "node") showNode(at, node, signal, fault);
  else if (view === "pod") showPod(at, node, pod, signal, fault);
  else if (view === "what-if") showWhatIf(at, node, signal, fault);
  else showCluster(at, signal, fault);
}

takeToken();
addEventListener("hashchange", go);
go();
