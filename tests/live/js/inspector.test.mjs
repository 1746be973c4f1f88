// The inspector's state, lines of tokens, and what is said about one token.

import assert from "node:assert/strict";
import test from "node:test";
import {
  bestOther,
  blockWords,
  entropyWords,
  flowItems,
  panelOf,
  percent,
  promptParts,
  reduceAnswers,
  sourceOf,
  spoken,
  tokenLook,
} from "../../../widgets/yaie_widgets/live/js/inspector_answer.js";
import { layLines, lineOf, linesInSight } from "../../../widgets/yaie_widgets/live/js/inspector_lines.js";

const scales = {
  probability: { limits: [0.9, 0.5, 0.2, 0.05] },
  entropy: { limits: [0.5, 1, 2, 3] },
};
const row = (low, high, ...candidates) => [low, high, candidates];
const answer = (facts = {}) => ({
  name: "req-7",
  prompt: [0, 1, 2, 3],
  output: [4, 5],
  cached: 2,
  rows: [row(0.3, 0.4, [4, Math.log(0.95), 1]), row(2.5, null, [6, Math.log(0.6), 1], [5, Math.log(0.03), 7])],
  prompt_rows: null,
  running: false,
  blocks: { size: 4, table: [1234] },
  vocab: { 4: [["", "·", "a"], false], 5: [["", "⏎"], false], 6: [["<eos>"], true] },
  origin: null,
  ...facts,
});
const whole = (...answers) => ({ kind: "whole", answers, scales, colour: "probability" });

test("a growing answer is put together from its pieces", () => {
  let state = reduceAnswers(null, whole(answer({ running: true })));
  const piece = { kind: "grown", number: 0, from: 2, output: [6], rows: [row(1, 2, [6, -1, 1])], vocab: { 7: [["x"]] }, seq: 2 };
  state = reduceAnswers(state, { ...piece, cached: 3, counts: "3 tokens" });
  const [found] = state.answers;
  assert.deepEqual(found.output, [4, 5, 6]);
  assert.equal(found.rows.length, 3);
  assert.equal(found.counts, "3 tokens");
  assert.equal(found.cached, 3);
  assert.deepEqual(Object.keys(found.vocab), ["4", "5", "6", "7"]);
  assert.ok(!("from" in found) && !("kind" in found));
  assert.equal(reduceAnswers(state, piece).gap, true, "the same piece again does not fit");
  assert.equal(reduceAnswers({ ...state, gap: true }, whole(answer())).gap, false);
});

test("a new answer clears a refusal, and a refusal keeps the answers", () => {
  let state = reduceAnswers(null, whole(answer()));
  state = reduceAnswers(state, { kind: "refused", text: "no" });
  assert.equal(state.refused, "no");
  assert.equal(state.answers.length, 1);
  state = reduceAnswers(state, { kind: "answer", number: 1, answer: answer({ name: "req-8" }) });
  assert.equal(state.refused, "");
  assert.deepEqual(state.answers.map(one => one.name), ["req-7", "req-8"]);
  assert.equal(reduceAnswers(null, { kind: "grown", number: 0 }), null);
});

test("the look of a token", () => {
  const one = answer();
  assert.deepEqual(tokenLook(one, 1, scales, "probability"), ["hit"]);
  assert.deepEqual(tokenLook(one, 2, scales, "probability"), ["cmp"]);
  assert.deepEqual(tokenLook(one, 4, scales, "probability"), ["l0"]);
  assert.deepEqual(tokenLook(one, 5, scales, "probability"), ["l4"]);
  assert.deepEqual(tokenLook(one, 5, scales, "entropy"), ["l3"]);
  assert.deepEqual(tokenLook(answer({ output: [4, 6] }), 5, scales, "probability"), ["l1", "spc"]);
  assert.deepEqual(tokenLook(answer({ rows: null }), 5, scales, "probability"), []);
});

test("the panel", () => {
  const panel = panelOf(answer(), 5);
  assert.equal(panel.place, "token 2 of 2");
  assert.deepEqual(Object.fromEntries(panel.figures), {
    "Token id": "5",
    Probability: "3.0 %",
    "Log probability": "−3.51",
    Rank: "7",
    Entropy: "≥ 2.50 bits",
    Source: "sampled",
    Position: "5",
    Block: "none: never computed",
  });
  assert.equal(panel.candidates.length, 2);
  assert.equal(panelOf(answer(), 0).place, "prompt token 1 of 4");
  assert.deepEqual(panelOf(answer(), 0).figures.map(([name]) => name), ["Token id", "Source", "Position", "Block"]);
});

test("blocks, sources, entropy and shares in words", () => {
  assert.equal(blockWords(answer(), 3), "0 → 1,234, slot 3");
  assert.equal(blockWords(answer(), 4), "1, slot 0");
  assert.equal(blockWords(answer({ running: true }), 5), "1, slot 1");
  assert.equal(blockWords(answer({ blocks: null }), 3), "—");
  const branched = answer({ origin: { parent: 0, position: 1 }, cached: 5 });
  assert.deepEqual([0, 4, 5].map(at => sourceOf(branched, at)), ["cache", "cache", "branch"]);
  assert.equal(entropyWords([1, 1.001]), "1.00 bits");
  assert.equal(entropyWords([0.25, 1.5]), "0.25 to 1.50 bits");
  assert.equal(percent(0.0004), "< 0.1 %");
});

test("what b takes, and what a screen reader hears", () => {
  assert.equal(bestOther(answer(), 5)[0], 6);
  assert.equal(bestOther(answer(), 4), null);
  assert.equal(bestOther(answer(), 1), null);
  assert.equal(spoken(answer(), 5), "new line, probability 3.0 %, rank 7");
  assert.equal(spoken(answer(), 4), "a, probability 95.0 %, rank 1");
});

test("a long prompt shows its ends and where the cached part ends", () => {
  assert.deepEqual(promptParts(48, 10), [[0, 48]]);
  assert.deepEqual(promptParts(390, 208), [[0, 14], [204, 212], [376, 390]]);
  assert.deepEqual(promptParts(100, 20), [[0, 24], [86, 100]]);
  assert.deepEqual(promptParts(390, 390), [[0, 14], [376, 390]]);
  const items = flowItems(answer(), [[0, 1], [3, 4]], 0, 4);
  assert.deepEqual(items, [{ at: 0, block: 0, fork: false }, { gap: 2 }, { at: 3, block: null, fork: false }]);
});

test("lines are filled and end where a token ends them", () => {
  const items = [3, 4, 5, 20, 1, 1].map(width => ({ width }));
  const lines = layLines([], items, 0, 10, one => one.width, () => false);
  assert.deepEqual(lines, [[0, 2], [2, 3], [3, 4], [4, 6]]);
  assert.deepEqual(layLines([], items, 0, 100, one => one.width, one => one.width === 4), [[0, 2], [2, 6]]);
  // Laid out again from the last line on, as an answer grows.
  const grown = layLines(lines.slice(0, -1), [...items, { width: 9 }], 4, 10, one => one.width, () => false);
  assert.deepEqual(grown, [[0, 2], [2, 3], [3, 4], [4, 6], [6, 7]]);
  assert.deepEqual(layLines([], [], 0, 10, one => one.width, () => true), []);
});

test("only lines in sight are made", () => {
  assert.deepEqual(linesInSight(1000, 33, 3300, 3300 + 330, 2), [98, 112]);
  assert.deepEqual(linesInSight(5, 33, -500, -100, 2), [0, 0]);
  assert.deepEqual(linesInSight(5, 33, 0, 480, 6), [0, 5]);
  const lines = Array.from({ length: 100 }, (_, at) => [at * 7, at * 7 + 7]);
  for (const place of [0, 6, 7, 350, 699]) assert.equal(lineOf(lines, place), Math.floor(place / 7));
});
