// @ts-check
// Questions about the figures: to the server, with the token of the address, or to the market in an exported page.
import { offline } from "./offline.js";

/** @type {string} */
let token = "";
const tab = crypto.randomUUID();

/** Takes the token out of the address, so that it is in no history, and keeps it for a reload. */
export function takeToken() {
  if (offline) return;
  const found = /^#token=([0-9a-f]{32})(\/.*)$/.exec(location.hash);
  if (found) {
    sessionStorage.setItem("token", found[1]);
    history.replaceState(null, "", `${location.pathname}#${found[2]}`);
  }
  token = sessionStorage.getItem("token") ?? "";
}

/** A refused request, with the server's sentence. */
export class Refused extends Error {}

/**
 * @param {string} what
 * @param {Record<string, string | number>} [query]
 * @param {AbortSignal} [signal]
 */
export async function ask(what, query = {}, signal) {
  const params = new URLSearchParams(Object.entries(query).map(([k, v]) => [k, String(v)]));
  if (offline) {
    const reply = await offline(what, params.toString());
    signal?.throwIfAborted();
    if (reply.error) throw new Refused(reply.error);
    return JSON.parse(reply.answer ?? "null");
  }
  const response = await fetch(`/api/${what}?${params}`, {
    headers: { "X-Mbcas-Token": token, "X-Mbcas-Tab": tab }, signal,
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
      const timer = setTimeout(done, every);
      signal.addEventListener("abort", () => { clearTimeout(timer); done(undefined); }, { once: true });
    });
  }
}
