// The reducer of generations: messages become rows with their text.

import assert from "node:assert/strict";
import { test } from "node:test";
import { keepForm, keptOutputs } from "../../../widgets/yaie_widgets/live/js/generation_keep.js";
import { ended, lastLine, reduceGeneration, runningFirst } from "../../../widgets/yaie_widgets/live/js/generation_state.js";

const row = (state, text = "") => ({ id: "req-1", state, status: state, stats: [["Output", "0", "tokens"]], text });
const whole = (...rows) => ({ kind: "whole", title: "", stacked: false, total: rows.length, tally: "", rows });
const rows = (...changes) => ({ kind: "rows", rows: changes, tally: "t", total: 2 });

test("text is appended and only the fields that came are changed", () => {
  let state = reduceGeneration(null, whole(row("prefill")));
  state = reduceGeneration(state, rows([0, { state: "decode" }, "a <b>"], [0, {}, "c"]));
  assert.equal(state.rows[0].text, "a <b>c");
  assert.equal(state.rows[0].state, "decode");
  assert.equal(state.rows[0].status, "prefill");
  assert.deepEqual([state.tally, state.total], ["t", 2]);
});

test("a row that is new begins empty", () => {
  const state = reduceGeneration(reduceGeneration(null, whole()), rows([0, row("waiting"), ""], [1, row("decode"), "x"]));
  assert.deepEqual(state.rows.map(each => each.text), ["", "x"]);
});

test("a whole state replaces everything and starts a new epoch", () => {
  const first = reduceGeneration(null, whole(row("decode", "old")));
  const second = reduceGeneration(first, whole(row("decode", "new")));
  assert.equal(second.rows[0].text, "new");
  assert.equal(second.epoch, first.epoch + 1);
});

test("states are not changed in place", () => {
  const first = reduceGeneration(null, whole(row("decode", "a")));
  reduceGeneration(first, rows([0, {}, "b"]));
  assert.equal(first.rows[0].text, "a");
});

test("rows before any whole state, and unknown kinds, change nothing", () => {
  assert.equal(reduceGeneration(null, rows([0, {}, "x"])), null);
  const state = reduceGeneration(null, whole(row("decode")));
  assert.equal(reduceGeneration(state, { kind: "other" }), state);
});

test("failed and running ones come first on request, in their order", () => {
  const states = ["finished", "waiting", "decode", "failed", "cancelled", "prefill"].map(state => row(state));
  assert.deepEqual(runningFirst(states), [3, 2, 5, 1, 0, 4]);
  assert.deepEqual(states.map(ended), [true, false, false, true, true, false]);
});

test("the last line is the one being written", () => {
  assert.equal(lastLine("one\ntwo"), "two");
  assert.equal(lastLine("one\ntwo\n\n"), "two");
  assert.equal(lastLine(""), "");
});

test("the finished form takes the widget's place, its stand-in goes, other outputs stay", () => {
  const key = "a".repeat(32);
  const view = { output_type: "display_data", data: { "application/vnd.jupyter.widget-view+json": { model_id: key } } };
  const standIn = { output_type: "display_data", data: { "text/html": ['<div data-yaie-twin="' + key + '">', "x</div>"] } };
  const other = { output_type: "stream", name: "stdout", text: "printed" };
  const form = { "text/plain": "the text" };
  const kept = keptOutputs([other, view, standIn, other], key, form);
  assert.deepEqual(kept, [other, { output_type: "display_data", metadata: {}, data: form }, other]);
  assert.equal(keptOutputs([other, standIn], key, form), null);
  assert.equal(keptOutputs([view], "b".repeat(32), form), null);
});

test("a host that shows no notebook to widgets keeps nothing, and one without the widget has nothing to keep", async () => {
  const model = context => ({
    get: () => "a".repeat(32),
    widget_manager: { get_model: async () => ({ widget_manager: { context } }) },
  });
  assert.equal(await keepForm({ get: () => "k" }, {}), false);
  assert.equal(await keepForm(model(undefined), {}), false);
  assert.equal(await keepForm(model({ ready: Promise.resolve(), model: { cells: { length: 0 } } }), {}), true);
});
