import assert from "node:assert/strict";
import { test } from "node:test";
import { LEFT, RIGHT, minmaxColumns, stepAt, xOf } from "../../../widgets/yaie_widgets/live/js/core_axis.js";
import { count, counted, ms, pct, rate, visibleLine } from "../../../widgets/yaie_widgets/live/js/core_format.js";
import { blockStates, createRun, textOf } from "../../../widgets/yaie_widgets/live/js/core_run.js";

const step = (number, more = {}) => ({ step: number, at: number, prefill: 0, decode: 1, batch: [], ms: [1, 1, 1, 1], ...more });

const recorded = (steps, more = {}) => ({
  format: "yaie-recording", version: 1, run: "a",
  engine: { name: "tiny", block_size: 4, num_blocks: 6, state: "ready" },
  base: { step: 0, nodes: [], tables: [], waiting: [] },
  steps, requests: {}, vocab: {}, ...more,
});

const plain = frame => ({ ...frame, nodes: [...frame.nodes.values()], tables: [...frame.tables], waiting: [...frame.waiting] });

test("figures", () => {
  assert.equal(count(1024), "1,024");
  assert.equal(count(null), "—");
  assert.equal(count(0), "0");
  assert.equal(counted(1, "block"), "1 block");
  assert.equal(ms(56), "56.0 ms");
  assert.equal(ms(12345), "12.3 s");
  assert.equal(ms(undefined), "—");
  assert.equal(rate(72), "72.0 tok/s");
  assert.equal(rate(Infinity), "—");
  assert.equal(pct(0.331), "33.1 %");
});

test("what cannot be seen is made visible", () => {
  assert.equal(visibleLine(" a\n\tb"), " a⏎⇥b");
  assert.equal(visibleLine("\u202e\u200b\u0007"), "‹U+202E›‹U+200B›␇");
});

test("the axis goes there and back", () => {
  const view = { from: 11, to: 60 };
  for (const at of [11, 30, 60]) assert.equal(stepAt(xOf(at, view, 900) + 1, view, 900), at);
  assert.equal(stepAt(0, view, 900), 11);
  assert.equal(stepAt(900, view, 900), 60);
  assert.equal(xOf(61, view, 900), 900 - RIGHT);
  assert.equal(xOf(11, view, 900), LEFT);
});

test("columns keep the smallest and the largest", () => {
  const columns = minmaxColumns([1, 9, 2, null, 5, 5], 3);
  assert.deepEqual(columns.map(one => [one.min, one.max]), [[1, 9], [2, 2], [5, 5]]);
  assert.equal(minmaxColumns([1, 2], 10).length, 2);
});

const busy = [
  step(1, { arrived: ["r", "s"], admitted: [["r", 0]], tables: [["r", 0, [0, 1], 6]], nodes: [[7, 0, "", 0, 0, [1, 2], 0, [0], 1]] }),
  step(3, { tables: [["r", 2, [], 7]], nodes: [[7, 0, "", 0, 2, [3], 1, [1], 3]], batch: [["r", "decode", 1]] }),
  step(4, { left: [["r", "waiting"]], used: [[7, 4]] }),
];

test("frames forwards, backwards and between recorded steps", () => {
  const run = createRun(recorded(busy));
  const later = plain(run.frameAt(4));
  const earlier = plain(run.frameAt(1));
  assert.deepEqual(later.waiting, ["s", "r"]);
  assert.deepEqual(later.nodes, [{ id: 7, parent: 0, start: 0, used_step: 4, namespace: "", token_ids: [1, 2, 3], blocks: [0, 1] }]);
  assert.deepEqual(earlier.tables, [["r", { blocks: [0, 1], num_computed: 6 }]]);
  assert.deepEqual(earlier.nodes[0].token_ids, [1, 2]);
  assert.deepEqual(plain(run.frameAt(2)), earlier);
  assert.equal(run.frameAt(0).nodes.size, 0);
  assert.equal(run.step(2), null);
  assert.equal(run.near(2), 1);
  assert.equal(run.beside(1, 1), 3);
  assert.deepEqual(run.steps(2, 3).map(one => one.step), [3]);
});

test("a frame that was given does not change with later ones", () => {
  const run = createRun(recorded(busy));
  const kept = run.frameAt(1);
  const before = JSON.stringify(plain(kept));
  run.frameAt(3);
  run.append({ steps: [step(5, { wiped: true })], requests: { r: { state: "decode" } }, vocab: {}, engine: { state: "closed" } });
  assert.equal(run.frameAt(5).nodes.size, 0);
  assert.equal(JSON.stringify(plain(kept)), before);
  assert.equal(run.engine.state, "closed");
  assert.equal(run.requestOf("r").state, "decode");
  assert.equal(run.requestOf("unknown").num_output_tokens, null);
});

test("a step that comes twice counts once", () => {
  const run = createRun(recorded(busy));
  run.append({ steps: [busy[2], step(5)], requests: {}, vocab: {}, engine: {} });
  assert.deepEqual(run.steps().map(one => one.step), [1, 3, 4, 5]);
});

test("beyond 4,096 steps the oldest become the base", () => {
  const first = [step(1, { nodes: [[1, 0, "", 0, 0, [5], 0, [0], 1]] })];
  const run = createRun(recorded(first));
  const more = [];
  for (let i = 2; i <= 5000; i++) more.push(step(i, { nodes: [[1, 0, "", 0, i - 1, [i], 1, [], i]] }));
  run.append({ steps: more.slice(0, 3000), requests: {}, vocab: {}, engine: {} });
  assert.equal(run.frameAt(2500).nodes.get(1).token_ids.length, 2500);
  run.append({ steps: more.slice(3000), requests: {}, vocab: {}, engine: {} });
  assert.equal(run.size, 4096);
  assert.equal(run.first, 905);
  for (const at of [905, 960, 2500, 5000, 904]) assert.equal(run.frameAt(at).nodes.get(1).token_ids.length, at);
});

test("texts join their bytes before they are decoded", () => {
  const run = createRun(recorded([], { vocab: { 1: "a", 2: [0xf0, 0x9f], 3: [0x8e, 0x89] } }));
  assert.equal(textOf(run, [1, 2, 3, 99]), "a🎉");
});

test("blocks are free, cached, held or shared, and add up", () => {
  const run = createRun(recorded([
    step(1, {
      tables: [["r", 0, [0, 1], 6], ["s", 0, [0, 2], 5]],
      nodes: [[7, 0, "", 0, 0, [1, 2, 3, 4], 0, [0], 1], [8, 7, "", 4, 0, [5, 6, 7], 0, [3], 1]],
      batch: [["r", "prefill", 2], ["s", "prefill", 1]],
    }),
  ]));
  const found = blockStates(run, run.frameAt(1));
  assert.deepEqual([found.free, found.cached, found.held, found.shared], [2, 1, 2, 1]);
  assert.deepEqual(found.cells.map(cell => cell.state), ["shared", "held", "held", "cached", "free", "free"]);
  assert.deepEqual(found.cells.map(cell => cell.used), [4, 2, 1, 3, 0, 0]);
  assert.deepEqual(found.cells.map(cell => cell.written), [false, true, true, false, false, false]);
  assert.deepEqual(found.cells[0].holders, ["r", "s"]);
  assert.equal(found.cells[3].node, 8);
});

test("facts of a request that have changed leave the others as they were", () => {
  const run = createRun({ run: "a", base: { step: 0, nodes: [], tables: [], waiting: [] }, engine: {}, steps: [], vocab: {},
    requests: { r: { text: "Why?", state: "decode", num_output_tokens: 3 } } });
  run.append({ requests: { r: { num_output_tokens: 4 } } });
  assert.deepEqual(run.requests.r.text + run.requests.r.state + run.requests.r.num_output_tokens, "Why?decode4");
});

test("requests that ended in steps that are rolled up are forgotten, those that wait again are not", () => {
  const steps = Array.from({ length: 5000 }, (_, i) => ({ step: i + 1, batch: [], ms: [0, 0, 0, 0],
    arrived: ["r" + i], left: i % 2 ? [["r" + (i - 1), "finished"]] : [["r" + i, "waiting"]] }));
  const run = createRun({ run: "a", base: { step: 0, nodes: [], tables: [], waiting: [] }, engine: {}, steps: [], vocab: {}, requests: {} });
  const requests = {};
  for (let i = 0; i < 5000; i++) requests["r" + i] = { state: "decode" };
  run.append({ steps, requests });
  assert.equal(run.size, 4096);
  assert.equal(Object.keys(run.requests).length, 5000 - 452);
  assert.ok(!run.requests.r0 && run.requests.r1 && run.requests.r904);
});
