// The model of the block map: what a cell is and did, where keys, lens and card go.

import assert from "node:assert/strict";
import { test } from "node:test";
import { blockFacts, cardPlace } from "../../../widgets/yaie_widgets/live/js/blocks_card.js";
import { lensStart } from "../../../widgets/yaie_widgets/live/js/blocks_canvas.js";
import { spokenCell } from "../../../widgets/yaie_widgets/live/js/blocks_cell.js";
import { blocksModel, cellMark, eventsOf, gridShape, gridTarget, requestMark } from "../../../widgets/yaie_widgets/live/js/blocks_model.js";
import { createRun } from "../../../widgets/yaie_widgets/live/js/core_run.js";

// Four tokens a block: a prefix of two blocks that req-3 and req-12/1 share, a tail of req-3, a cached half block.
function madeRun(last = {}) {
  const node = (id, parent, start, tokens, blocks, used) => [id, parent, "", start, tokens, blocks, used];
  const nodes = [node(1, 0, 0, [1, 2, 3, 4, 5, 6, 7, 8], [0, 1], 4), node(2, 1, 8, [9, 10], [2], 4), node(3, 1, 8, [11, 12], [5], 2)];
  return createRun({
    run: "r",
    engine: { num_blocks: 8, block_size: 4 },
    base: { step: 4, nodes, tables: [["req-3", [0, 1, 2], 10], ["req-12/1", [0, 1, 4], 9]], waiting: [] },
    requests: { "req-3": {}, "req-12/1": {} },
    vocab: Object.fromEntries(Array.from({ length: 13 }, (_, i) => [i, String.fromCharCode(96 + i)])),
    steps: [{ step: 5, batch: [["req-3", "decode", 1]], tables: [["req-3", 3, [], 11]], ...last }]
  });
}

const modelOf = (run) => blocksModel(run, run.frameAt(5), run.step(5));

test("states, their counts and the words in the cells", () => {
  const run = madeRun();
  const model = modelOf(run);
  assert.deepEqual(model.cells.map((cell) => cell.state), ["shared", "shared", "held", "free", "held", "cached", "free", "free"]);
  assert.deepEqual(model.counts, { free: 3, cached: 1, held: 2, shared: 2, written: 1, copied: 0, evicted: 0, swapped: 0 });
  assert.deepEqual([0, 2, 4, 5, 3].map((id) => cellMark(run, model.cells[id])), ["×2", "3", "12", "", ""]);
});

test("a request without a number in its id is named by its place", () => {
  assert.equal(requestMark({ requests: { a: {}, b: {} } }, "b"), "2");
});

test("what the step did", () => {
  const run = madeRun({ copied: [[1, 4]], evicted: [4, 6], swapped: [[6, -1], [-4, 7]], allocated: [4, 3], freed: [5] });
  const model = modelOf(run);
  const said = (id) => Object.fromEntries(blockFacts(run, run.frameAt(5), model, run.step(5), id).rows)["This step"];
  assert.deepEqual(eventsOf(model, model.cells[4]), ["written", "copied", "evicted"]);
  assert.equal(said(2), "written by decode");
  assert.match(said(4), /copied from block 1, old content evicted/);
  assert.deepEqual([said(0), said(3), said(5), said(7)], ["no change", "allocated", "freed", "swapped in from host block 3"]);
  assert.deepEqual([model.counts.copied, model.counts.evicted, model.counts.swapped], [1, 2, 2]);
});

test("what a request wrote in the step in which it ended is marked by the node that grew", () => {
  const node = [3, 1, "", 8, 2, [13, 14, 15], 1, [7], 5];
  const run = madeRun({ batch: [["req-9", "decode", 3]], extended: [3], nodes: [node], left: [["req-9", "finished"]] });
  const model = modelOf(run);
  assert.deepEqual(model.cells.filter((cell) => cell.written).map((cell) => cell.id), [5, 7]);
  const facts = blockFacts(run, run.frameAt(5), model, run.step(5), 7);
  assert.deepEqual(facts.rows.at(-1), ["This step", "written by decode"]);
});

test("of a node that grew only the blocks of its new tokens were written", () => {
  const run = madeRun({ extended: [1], batch: [], nodes: [[1, 0, "", 0, 8, [13, 14], 2, [6], 5]] });
  assert.deepEqual(modelOf(run).cells.filter((cell) => cell.written).map((cell) => cell.id), [6]);
});

test("a block that begins in the node above quotes both", () => {
  const node = [9, 1, "", 6, 0, [11, 12, 13], 0, [1, 7], 5];
  const run = madeRun({ batch: [], nodes: [[1, 0, "", 0, 6, [], 1, [], 5], node] });
  const facts = blockFacts(run, run.frameAt(5), modelOf(run), run.step(5), 1);
  assert.equal(facts.text, "efkl");
});

test("the card of a block tells positions, filling and text", () => {
  const run = madeRun();
  const facts = (id) => {
    const found = blockFacts(run, run.frameAt(5), modelOf(run), run.step(5), id);
    return { ...Object.fromEntries(found.rows), words: found.words, text: found.text };
  };
  assert.deepEqual(facts(1), {
    words: "shared by 2", text: "efgh", Requests: "req-3, req-12/1", Positions: "4 to 7", Filled: "4 of 4 tokens",
    References: "2", "Last used": "1 step ago", "This step": "no change"
  });
  assert.deepEqual([facts(5).Requests, facts(5).Positions, facts(5).Filled, facts(5).text], ["none, tree only", "8 to 9", "2 of 4 tokens", "kl"]);
  assert.deepEqual([facts(5)["Last used"], facts(3).text, facts(3).Positions], ["3 steps ago", null, undefined]);
  assert.equal(spokenCell(modelOf(run).cells[2], ["written"]), "block 2, held, req-3, written");
});

test("arrow keys stay inside the pool", () => {
  const to = (key, id) => gridTarget(key, id, 20, 26);
  assert.deepEqual([to("ArrowRight", 25), to("ArrowRight", 19), to("ArrowLeft", 0), to("ArrowDown", 5), to("ArrowDown", 7)], [25, 20, 0, 25, 7]);
  assert.deepEqual([to("ArrowUp", 21), to("Home", 22), to("End", 22), to("End", 3), to("q", 3)], [1, 20, 25, 19, null]);
});

test("cells shrink with their number", () => {
  assert.deepEqual(gridShape(256, 600), { columns: 20, size: 0 });
  assert.deepEqual(gridShape(1024, 600), { columns: 40, size: 12 });
  assert.deepEqual(gridShape(20000, 550), { columns: 180, size: 3 });
  assert.deepEqual(gridShape(1100, 550), { columns: 40, size: 12 });
  assert.deepEqual(gridShape(2048, 550), { columns: 60, size: 9 });
});

test("the lens shows its block, the card stays inside its area", () => {
  assert.deepEqual([lensStart(0, 15, 180), lensStart(90, 15, 180), lensStart(179, 15, 180), lensStart(3, 15, 10)], [0, 83, 165, 0]);
  const area = { left: 100, top: 50, width: 600, height: 240 };
  const card = { width: 290, height: 200 };
  const block = (left, top) => ({ left, right: left + 28, top });
  assert.deepEqual(cardPlace(block(130, 60), area, card), { x: 66, y: 2 });
  assert.deepEqual(cardPlace(block(650, 260), area, card), { x: 252, y: 40 });
  assert.deepEqual(cardPlace(block(120, 60), { ...area, width: 300 }, card), { x: 10, y: 2 });
});
