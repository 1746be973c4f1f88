// The six strips of the dashboard: what each shows of a step, on which scale, and in which words.
import { DASH, count } from "./core_format.js";
import { hitRate, rateOf, tokensOf, totalMs } from "./story.js";

const most = (scene, ...values) =>
  scene.shown.reduce((top, one) => Math.max(top, ...values.map(value => value(one))), 0);
// The upper edge of measured values. One that is far beyond all others (a first step that compiles) would hide them: it
// is cut off there, and marked.
export function cutTop(scene, value) {
  const values = scene.shown.map(value).sort((a, b) => a - b);
  const largest = values.at(-1) ?? 0;
  const usual = values[Math.floor(0.98 * (values.length - 1))] ?? 0;
  return values.length >= 10 && largest > 4 * usual && usual > 0 ? 1.25 * usual : largest;
}

// One decimal; halves go up, as in the static drawing.
const ONE_DECIMAL = { minimumFractionDigits: 1, maximumFractionDigits: 1 };
const decimal = value => (Math.floor(value * 10 + 0.5) / 10).toLocaleString("en-US", ONE_DECIMAL);

// `56.3 ms`, or `12.3 s` from ten seconds on.
export const stepTime = value => (value >= 10000 ? decimal(value / 1000) + " s" : decimal(value) + " ms");

const running = one => one.running;
const queued = one => one.queued;
const ownedBlocks = one => one.shared + one.held + one.cached;
const mostBlocks = scene => scene.engine.num_blocks || most(scene, ownedBlocks);
const budgetOf = scene => scene.engine.max_num_batched_tokens ?? 0;
const mostTokens = scene => Math.max(most(scene, tokensOf), budgetOf(scene));

// A scene is {engine, story, shown}: `shown` are the figures in sight. Bars stack in the order of the parts, lines do
// not. `top` is the value at the upper edge.
export const STRIPS = [
  {
    title: "Requests",
    parts: [["running", "ink", "line", running], ["queued", "ink", "dots", queued]],
    top: scene => most(scene, running, queued),
    edge: scene => "most " + count(most(scene, running, queued)),
    words: (scene, one) => [count(one.running) + " running", count(one.queued) + " queued"],
  },
  {
    title: "Tokens per step",
    parts: [["prefill", "prefill", "bar", one => one.prefill], ["decode", "decode", "bar", one => one.decode]],
    top: mostTokens,
    limit: true,
    edge: scene => (budgetOf(scene) ? "budget " + count(budgetOf(scene)) : "most " + count(mostTokens(scene))),
    words: (scene, one) => [count(tokensOf(one)) + " tok", budgetOf(scene) ? "of " + count(budgetOf(scene)) : ""],
  },
  {
    title: "KV blocks",
    parts: ["shared", "held", "cached"].map(state => [state, state, "bar", one => one[state]]),
    top: mostBlocks,
    limit: true,
    edge: scene => count(mostBlocks(scene)) + " blocks",
    words: (scene, one) => [count(one.shared + one.held) + " held", count(one.cached) + " cached"],
  },
  {
    title: "Cache hit rate",
    parts: [["all so far", "cached", "line", (one, story) => hitRate(story, one) ?? 0]],
    top: () => 100,
    limit: true,
    edge: () => "100 %",
    words: (scene, one) => {
      const share = hitRate(scene.story, one);
      return [share === null ? DASH : decimal(share) + " %", "of prompt tok"];
    },
  },
  {
    title: "Output rate",
    parts: [["each step", "decode", "line", rateOf]],
    top: scene => cutTop(scene, rateOf),
    edge: scene => "most " + count(most(scene, rateOf)) + " tok/s",
    words: (scene, one) => [count(rateOf(one)) + " tok/s", count(one.output) + " in the step"],
  },
  {
    title: "Step time",
    parts: [["forward", "g2", "bar", one => one.ms[1]], ["other", "ink", "bar", one => totalMs(one) - one.ms[1]]],
    top: scene => cutTop(scene, totalMs),
    edge: scene => "most " + stepTime(most(scene, totalMs)),
    words: (scene, one) => [stepTime(totalMs(one)), decimal(one.ms[1]) + " forward"],
  },
];

// Totals as [name, figure].
export function totalWords(totals, engine) {
  const words = [
    ["Running", count(totals.running)],
    ["Queued", count(totals.queued)],
    ["Ended", count(totals.ended) + " of " + count(totals.requests)],
    ["Prompt tokens", count(totals.prompt)],
    ["Output tokens", count(totals.output)],
    ["Preemptions", count(totals.preemptions) + (totals.swaps ? ", " + count(totals.swaps) + " swapped" : "")],
    ["Evictions", count(totals.evictions)],
    ["Copies", count(totals.copies)],
  ];
  return engine.memory ? [...words, ["Memory", count(engine.memory / 2 ** 20) + " MiB"]] : words;
}

// "tiny · float32 · cpu · reference attention · flat tier".
export function engineWords(engine) {
  const { name, dtype, device, attention_backend: backend, tier } = engine;
  return [name, dtype, device, backend && backend + " attention", tier && tier + " tier"].filter(Boolean).join(" · ");
}
