// The model of the radix tree: children, what a step did, which rows are shown, where keys lead.

import assert from "node:assert/strict";
import { test } from "node:test";
import { createRun } from "../../../widgets/yaie_widgets/live/js/core_run.js";
import { axisLength, axisTicks, roundUp } from "../../../widgets/yaie_widgets/live/js/tree_axis.js";
import { treeTarget } from "../../../widgets/yaie_widgets/live/js/tree_keys.js";
import { nodeAge, nodeState, treeModel } from "../../../widgets/yaie_widgets/live/js/tree_model.js";
import { requestPath } from "../../../widgets/yaie_widgets/live/js/tree_path.js";
import { openLevels, treeRows } from "../../../widgets/yaie_widgets/live/js/tree_rows.js";
import { aroundHit, findNodes, markEdges, treeTexts } from "../../../widgets/yaie_widgets/live/js/tree_text.js";

// A node as [id, parent, start, token ids, blocks]; blocks hold four tokens.
function frame(step, nodes, tables = {}, namespace = "") {
  const made = nodes.map(([id, parent, start, token_ids, blocks]) => [id, { id, parent, namespace, start, token_ids, blocks, used_step: step }]);
  return { step, nodes: new Map(made), tables: new Map(Object.entries(tables).map(([label, blocks]) => [label, { blocks, num_computed: 0 }])), waiting: new Set() };
}

const ids = (from, length) => Array.from({ length }, (_, i) => from + i);
const choice = (more = {}) => ({ closed: new Set(), opened: new Set(), levels: Infinity, limits: new Map(), path: new Set(), hits: null, ...more });
const keys = (rows) => rows.map((row) => row.key);

// One prefix with a small and a large branch, and a second prefix.
const NODES = [[1, 0, 0, ids(0, 8), [0, 1]], [2, 1, 8, ids(20, 4), [2]], [3, 1, 8, ids(30, 12), [3, 4, 5]], [4, 0, 0, ids(50, 4), [6]]];
const FRAME = frame(5, NODES, { a: [0, 1, 2], b: [0, 1, 3, 4] });

test("siblings stand by the tokens below them, and sums count every node once", () => {
  const model = treeModel(FRAME, FRAME, {});
  assert.deepEqual(model.below.get(0), [1, 4]);
  assert.deepEqual(model.below.get(1), [3, 2]);
  assert.deepEqual(model.totals, { nodes: 4, tokens: 28, blocks: 7 });
  assert.deepEqual(model.nodes.get(1).sum, { nodes: 3, tokens: 24, blocks: 6 });
});

test("a request passes through the node of its deepest tree block and all above", () => {
  const { nodes } = treeModel(FRAME, FRAME, {});
  assert.deepEqual([1, 2, 3, 4].map((id) => nodes.get(id).holders), [["a", "b"], ["a"], ["b"], []]);
  assert.deepEqual([1, 2, 4].map((id) => nodeState(nodes.get(id))), ["shared", "held", "cached"]);
});

test("an earlier order holds: a branch that outgrows its sibling stays, a new one comes last", () => {
  const earlier = treeModel(FRAME, FRAME, {}).below;
  const later = frame(6, [...NODES.slice(0, 1), [2, 1, 8, ids(20, 40), [2]], NODES[2], NODES[3], [5, 1, 8, ids(80, 90), [7]]]);
  assert.deepEqual(treeModel(later, FRAME, {}).below.get(1), [5, 2, 3]);
  assert.deepEqual(treeModel(later, FRAME, {}, earlier).below.get(1), [3, 2, 5]);
});

test("the upper part of a split node takes its place", () => {
  const earlier = treeModel(FRAME, FRAME, {}).below;
  const later = frame(6, [[1, 9, 4, ids(4, 4), [1]], NODES[1], NODES[2], NODES[3], [9, 0, 0, ids(0, 4), [0]]]);
  assert.deepEqual(treeModel(later, FRAME, { split: [9] }, earlier).below.get(0), [9, 4]);
});

test("an evicted node stays for one step as what it was, and counts nowhere", () => {
  const later = frame(6, NODES.slice(0, 3));
  const model = treeModel(later, FRAME, { evicted: [6] });
  assert.equal(model.nodes.get(4).gone, "evicted");
  assert.deepEqual(model.totals, { nodes: 3, tokens: 24, blocks: 6 });
  assert.equal(treeModel(later, FRAME, { freed: [6] }).nodes.get(4).gone, "freed");
  assert.equal(nodeAge(model.nodes.get(4), 6), "evicted");
  const branch = treeModel(frame(6, [NODES[0], NODES[1], NODES[3]]), FRAME, { evicted: [3, 4, 5] });
  assert.deepEqual([branch.totals.tokens, branch.nodes.get(1).sum.tokens, branch.nodes.get(3).lost], [16, 12, 0]);
  assert.ok(!treeModel(frame(7, NODES.slice(0, 3)), later, {}).nodes.has(4));
});

test("a node that was cut says how many tokens its end lost", () => {
  const later = frame(6, [NODES[0], NODES[1], [3, 1, 8, ids(30, 4), [3]], NODES[3]]);
  assert.equal(treeModel(later, FRAME, { evicted: [4, 5] }).nodes.get(3).lost, 8);
});

test("of a node split and evicted in one step only its lower part is gone", () => {
  const later = frame(6, [...NODES.slice(0, 2), [9, 1, 8, ids(30, 4), [3]], NODES[3]]);
  const ghost = treeModel(later, FRAME, { split: [9], evicted: [4, 5] }).nodes.get(3);
  assert.deepEqual([ghost.parent, ghost.start, ghost.tokens, ghost.blocks], [9, 12, 8, [4, 5]]);
});

test("a closed node says how many are below", () => {
  const model = treeModel(FRAME, FRAME, {});
  const rows = treeRows(model, choice({ closed: new Set(["n1"]) }));
  assert.deepEqual(keys(rows), ["n1", "n4"]);
  assert.deepEqual([rows[0].open, rows[0].hidden, rows[1].open], [false, 2, null]);
});

test("the path of a request opens what is closed by default, not what was closed by hand", () => {
  const model = treeModel(FRAME, FRAME, {});
  assert.deepEqual(keys(treeRows(model, choice({ levels: 1 }))), ["n1", "n4"]);
  assert.deepEqual(keys(treeRows(model, choice({ levels: 1, path: new Set([1, 2]) }))), ["n1", "n3", "n2", "n4"]);
  assert.deepEqual(keys(treeRows(model, choice({ closed: new Set(["n1"]), path: new Set([1, 2]) }))), ["n1", "n4"]);
});

test("hits keep their ancestors and nothing else, whatever is closed", () => {
  const model = treeModel(FRAME, FRAME, {});
  assert.deepEqual(keys(treeRows(model, choice({ closed: new Set(["n1"]), hits: new Set([2]) }))), ["n1", "n2"]);
  assert.deepEqual(keys(treeRows(model, choice({ hits: new Set() }))), []);
});

test("above forty siblings the rest is counted, and pressing shows twice as many", () => {
  const many = frame(5, ids(1, 163).map((id) => [id, 0, 0, [id], [id]]));
  const model = treeModel(many, many, {});
  const rows = treeRows(model, choice());
  assert.equal(rows.length, 41);
  assert.deepEqual([rows[40].kind, rows[40].hidden, rows[40].limit], ["more", 123, 80]);
  assert.equal(treeRows(model, choice({ limits: new Map([[rows[40].key, rows[40].limit]]) })).length, 81);
  const shown = treeRows(model, choice({ path: new Set([163]) }));
  assert.ok(keys(shown).includes("n163") && shown[41].hidden === 122);
});

test("levels stand open as long as they make no more than 200 rows", () => {
  const wide = ids(1, 10).flatMap((a) => [[a, 0, 0, [a], []], ...ids(0, 30).map((b) => [a * 100 + b, a, 1, [b], []])]);
  assert.equal(openLevels(treeModel(frame(5, wide), frame(5, wide), {})), 1);
  assert.equal(openLevels(treeModel(FRAME, FRAME, {})), Infinity);
});

test("a salted namespace is a row of its own", () => {
  const salted = frame(5, [[7, 6, 0, [1, 2], [8]]], {}, "salt:ab");
  const both = { ...FRAME, nodes: new Map([...FRAME.nodes, ...salted.nodes]) };
  const model = treeModel(both, both, {});
  const rows = treeRows(model, choice());
  assert.equal(model.namespaces, 2);
  assert.deepEqual(rows.slice(-2).map((row) => [row.key, row.level]), [["space6", 1], ["n7", 2]]);
  assert.equal(rows.at(-2).namespace, "salt:ab");
});

test("keys lead as in any tree", () => {
  const rows = treeRows(treeModel(FRAME, FRAME, {}), choice());
  assert.deepEqual(keys(rows), ["n1", "n3", "n2", "n4"]);
  const to = (key, place) => treeTarget(key, rows, place);
  assert.deepEqual([to("ArrowDown", 0), to("ArrowDown", 3), to("ArrowUp", 0), to("Home", 2), to("End", 0)], [1, 3, 0, 0, 3]);
  assert.deepEqual([to("ArrowRight", 0), to("ArrowRight", 1), to("ArrowLeft", 2), to("ArrowLeft", 0), to("x", 0)], [1, 1, 0, 0, -1]);
});

test("the path of an ended request ends where its prefix was evicted", () => {
  const node = (id, parent, start, tokens, blocks) => [id, parent, "", start, 0, tokens, 0, blocks, 1];
  const run = createRun({
    run: "r",
    engine: { num_blocks: 8, block_size: 4 },
    base: { step: 0, nodes: [], tables: [], waiting: [] },
    requests: { a: { num_prompt_tokens: 6, num_output_tokens: 2 } },
    vocab: {},
    steps: [
      { step: 1, nodes: [node(1, 0, 0, ids(0, 4), [0]), node(2, 1, 4, ids(9, 4), [1])], tables: [["a", 0, [0, 1], 8]] },
      { step: 2, left: [["a", "finished"]] },
      { step: 3, removed: [2], evicted: [1] }
    ]
  });
  const at = (step) => requestPath(run, treeModel(run.frameAt(step), run.frameAt(step - 1), run.step(step)), "a", step).map((one) => one.id);
  assert.deepEqual([at(1), at(2), at(3)], [[1, 2], [1, 2], [1]]);
});

test("search takes its words as they stand and shows the text around the hit", () => {
  const run = { vocab: { 1: "A (b) c", 2: "plain", 3: " İstanbul" } };
  const model = treeModel(frame(1, [[1, 0, 0, [1], []], [2, 0, 0, [2], []], [3, 0, 0, [3], []]]), null, {});
  const found = (query) => [...findNodes(run, model, treeTexts(), query).hits];
  assert.deepEqual([found("(B)"), found("."), found("stan")], [[1], [], [3]]);
  assert.deepEqual(aroundHit("one two", "TWO"), ["one ", "two", ""]);
  const [before, hit] = aroundHit("x".repeat(90) + "needle", "needle");
  assert.deepEqual([before, hit], ["…" + "x".repeat(16), "needle"]);
  assert.equal(markEdges("  a b "), "··a b·");
});

test("the axis holds every request, is round and never shrinks", () => {
  assert.deepEqual([1, 7, 11, 101, 600, 601].map(roundUp), [1, 8, 15, 150, 600, 800]);
  const run = { requests: { a: { num_prompt_tokens: 390, num_output_tokens: 37 } } };
  assert.equal(axisLength(run, { end: 120 }, 1), 600);
  assert.equal(axisLength({ requests: {} }, { end: 120 }, 600), 600);
  for (const length of [10, 15, 80, 600, 3000]) {
    const ticks = axisTicks(length);
    assert.ok(ticks.length >= 3 && ticks.length <= 6 && ticks.at(-1) < length && ticks[0] === 0);
  }
});
