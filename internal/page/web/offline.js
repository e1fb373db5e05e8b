// @ts-check
// The answers of an exported page: its own market decides on its own recording, without a server.

/** @param {string} id of the element that holds it */
const held = (id) => document.getElementById(id)?.textContent ?? "";

/** @param {string} text in base64 */
function bytes(text) {
  const binary = atob(text), out = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) out[i] = binary.charCodeAt(i);
  return out.buffer;
}

/** @typedef {{answer?: string, error?: string}} Reply */

/** @returns {((question: string, query: string) => Promise<Reply>) | null} null: the page has a server */
function offlineMarket() {
  if (!document.getElementById("recording")) return null;
  const worker = new Worker(URL.createObjectURL(new Blob([held("worker")], { type: "text/javascript" })));
  /** @type {Map<number, (reply: Reply) => void>} */ const waiting = new Map();
  let last = 0;
  worker.onmessage = ({ data }) => { waiting.get(data.id)?.(data); waiting.delete(data.id); };
  worker.onerror = () => waiting.forEach((done) => done({ error: "The market of this page has stopped; reload the page." }));
  const market = bytes(held("market")), recording = bytes(held("recording"));
  worker.postMessage({ market, recording }, [market, recording]);
  return (question, query) => new Promise((done) => {
    waiting.set(++last, done);
    worker.postMessage({ id: last, question, query });
  });
}

export const offline = offlineMarket();
