// @ts-check
// Questions about the figures: to the server, with the token of the address, or to the market in an exported page.
import { offline } from "./offline.js";

/** Sent with each question: the token, and the tab. @type {Record<string, string>} */
let headers = {};

/** A reload is the same tab to the server. */
function tabID() {
  const id = sessionStorage.getItem("tab") ?? crypto.randomUUID();
  sessionStorage.setItem("tab", id);
  return id;
}

/** Takes the token out of the address, so that it is in no history, and keeps it for a reload. */
export function takeToken() {
  if (offline) return;
  const found = /^#token=([0-9a-f]{32})(\/.*)$/.exec(location.hash);
  if (found) {
    sessionStorage.setItem("token", found[1]);
    history.replaceState(null, "", `${location.pathname}#${found[2]}`);
  }
  headers = { "X-Mbcas-Token": sessionStorage.getItem("token") ?? "", "X-Mbcas-Tab": tabID() };
  addEventListener("pagehide", () => { fetch("/api/leave", { headers, keepalive: true }).catch(() => {}); });
}

/** A refused request, with the server's sentence. */
export class Refused extends Error {}

/**
 * @param {string} what
 * @param {Record<string, string | number | string[]>} [query] a list stands for several values
 * @param {AbortSignal} [signal]
 */
export async function ask(what, query = {}, signal) {
  const params = new URLSearchParams(Object.entries(query).flatMap(([k, v]) => [v].flat().map((one) => [k, String(one)])));
  if (offline) {
    const reply = await offline(what, params.toString());
    signal?.throwIfAborted();
    if (reply.error) throw new Refused(reply.error);
    return JSON.parse(reply.answer ?? "null");
  }
  const response = await fetch(`/api/${what}?${params}`, { headers, signal }).catch((err) => {
    if (signal?.aborted) throw err;
    throw new Refused("The command that serves this page does not answer. Start kubectl mbcas dashboard again, and open its address.");
  });
  const answer = await response.json();
  if (!response.ok) throw new Refused(answer.error);
  return answer;
}

/**
 * Calls work now and then every few milliseconds, while the tab is visible and until the signal.
 * @param {number} every
 * @param {AbortSignal} signal
 * @param {() => Promise<void>} work
 */
export async function repeat(every, signal, work) {
  while (!signal.aborted) {
    if (!document.hidden) await work();
    await new Promise((done) => {
      const end = () => { clearTimeout(timer); signal.removeEventListener("abort", end); done(undefined); };
      const timer = setTimeout(end, every);
      signal.addEventListener("abort", end);
    });
  }
}
