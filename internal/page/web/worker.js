// @ts-check
// Runs the market of an exported page beside the page, so that the page stays responsive. It follows wasm_exec.js, which
// defines Go.
/** @type {any} */ const scope = self;

/** @param {ArrayBuffer} packed by gzip */
const unpack = (packed) => new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();

/** @type {Promise<void>} */ let begun;

/** @param {{market: ArrayBuffer, recording: ArrayBuffer}} given */
async function begin({ market, recording }) {
  const go = new scope.Go();
  const { instance } = await WebAssembly.instantiate(await unpack(market), go.importObject);
  go.run(instance); // it goes on for as long as the page is open
  const fault = scope.mbcasOpen(new Uint8Array(recording));
  if (fault) throw new Error(fault);
}

scope.onmessage = async (/** @type {MessageEvent} */ { data }) => {
  if (data.market) {
    begun = begin(data);
    begun.catch(() => {}); // each question below tells it
    return;
  }
  try {
    await begun;
    scope.postMessage({ id: data.id, ...scope.mbcasAnswer(data.question, data.query) });
  } catch (err) {
    scope.postMessage({ id: data.id, error: `The page cannot open its recording: ${/** @type {Error} */ (err).message}` });
  }
};
