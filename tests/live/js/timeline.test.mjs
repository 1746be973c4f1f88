// The window of the timeline, its bars, and lives that a recording does not tell whole.
import assert from "node:assert/strict";
import { test } from "node:test";
import { createRun } from "../../../widgets/yaie_widgets/live/js/core_run.js";
import { storyOf } from "../../../widgets/yaie_widgets/live/js/story.js";
import { HIGH, LOW, timelinePaths, timelineScale } from "../../../widgets/yaie_widgets/live/js/timeline_bars.js";
import { outputAt, timelineView } from "../../../widgets/yaie_widgets/live/js/timeline_model.js";
import { batchOf } from "../../../widgets/yaie_widgets/live/js/timeline_panel.js";
import { FEWEST_STEPS, panned, stepsInSight, zoomed } from "../../../widgets/yaie_widgets/live/js/timeline_window.js";

const RUN = { first: 1, last: 200 };
const usual = { span: 60, to: null };

test("the newest steps are in sight, or all of a short run", () => {
  assert.deepEqual(stepsInSight(usual, RUN, 200), { from: 141, to: 200 });
  assert.deepEqual(stepsInSight(usual, { first: 1, last: 9 }, 9), { from: 1, to: 9 });
  assert.deepEqual(stepsInSight({ span: null, to: null }, RUN, 3), { from: 1, to: 200 });
});

test("the cursor is always in sight, also after the oldest steps left", () => {
  for (const cursor of [1, 30, 141, 200]) {
    for (const to of [null, 60, 100, 200]) {
      const sight = stepsInSight({ span: 60, to }, RUN, cursor);
      assert.ok(sight.from <= cursor && cursor <= sight.to && sight.to - sight.from === 59, `${cursor} ${to}`);
      assert.ok(sight.from >= 1 && sight.to <= 200);
    }
  }
  assert.deepEqual(stepsInSight({ span: 60, to: 70 }, { first: 150, last: 400 }, 150), { from: 150, to: 209 });
});

test("zoom keeps a step in its place, ends at all steps, and at a few", () => {
  const sight = { from: 101, to: 160 };
  const into = zoomed(sight, RUN, 116, 2);
  assert.deepEqual(into, { span: 30, to: 138 });
  const place = (step, from, span) => (step - from + 0.5) / span;
  assert.ok(Math.abs(place(116, 109, 30) - place(116, 101, 60)) < 1 / 30);
  assert.deepEqual(zoomed(sight, RUN, 116, 0.1), { span: null, to: null });
  assert.equal(zoomed(sight, RUN, 116, 100).span, FEWEST_STEPS);
  assert.deepEqual(zoomed({ from: 141, to: 200 }, RUN, 200, 2), { span: 30, to: null });
});

const IDLE = { prefill: 0, decode: 0, batch: [], ms: [1, 1, 1, 1] };
const step = (number, more) => ({ step: number, at: number, ...IDLE, ...more });

function recorded(steps, requests = {}, base = {}) {
  const engine = { name: "tiny", state: "ready", num_blocks: 8, max_num_batched_tokens: 16 };
  const before = { step: 0, nodes: [], tables: [], waiting: [], ...base };
  return createRun({ run: "r", engine, base: before, steps, requests, vocab: {} });
}

test("one that the recording found running, and that nothing remembers", () => {
  const tables = [["old", [0, 1], 20]];
  const run = recorded([
    step(1, { batch: [["old", "decode", 1]], tables: [["old", 2, [], 21]] }),
    step(2, { tables: [["old", 2, [], 21]] }),
    step(3, { batch: [["old", "decode", 1]], left: [["old", "finished"]] }),
  ], {}, { tables });
  const [row] = timelineView(run, storyOf(run), 1, 3).rows;
  assert.deepEqual(row.spans.map(span => span.kind), ["decode", "paused", "decode"]);
  assert.deepEqual([row.state, row.prompt, row.cached, row.output], ["finished", null, null, null]);
  // Its decodes are counted, and the last token.
  assert.deepEqual([0, 1, 2].map(at => outputAt(row, at)), [1, 1, 2]);
  assert.deepEqual(row.end, { column: 3, reason: "finished" });
});

test("tokens of a span that the window cuts are those in sight", () => {
  const decode = number => step(number, { batch: [["a", "decode", 2]], tables: [["a", 0, [0], number]] });
  const run = recorded([1, 2, 3, 4, 5].map(decode), {}, { tables: [["a", [0], 1]] });
  const [row] = timelineView(run, storyOf(run), 2, 4).rows;
  assert.deepEqual(row.spans, [{ kind: "decode", first: 0, last: 2, tokens: 6, cached: 0 }]);
});

test("of too many rows the ended ones that came first are left out", () => {
  const labels = ["a", "b", "c", "d"];
  const left = [["a", "finished"], ["c", "finished"]];
  const run = recorded([step(1, { arrived: labels, left })]);
  const view = timelineView(run, storyOf(run), 1, 1, 3);
  assert.deepEqual(view.rows.map(row => row.label), ["b", "c", "d"]);
  assert.equal(view.hidden, 1);
});

test("a run that is replaced has a story of its own", () => {
  const one = recorded([step(1, { arrived: ["a"] })]);
  const other = recorded([step(1, { arrived: ["b"] })]);
  assert.notEqual(storyOf(one), storyOf(other));
  one.append({ steps: [step(2, { arrived: ["c"] })] });
  assert.deepEqual(storyOf(one).figures.map(each => each.queued), [1, 2]);
});

test("a batch lists prefills, decodes, and who lost its place", () => {
  const batch = [["a", "decode", 1], ["b", "prefill", 9]];
  const works = batchOf({ batch, admitted: [["b", 7]], preempted: ["c", "a", "d"], left: [["d", "swapped"]] });
  assert.deepEqual(works.map(one => [one.label, one.work, one.cached, one.tokens]),
    [["b", "prefill", 7, 9], ["a", "decode", 0, 1], ["c", "preempted", 0, null], ["d", "swapped", 0, null]]);
});

test("rows fill one of two heights, as far as names and lines allow", () => {
  for (let rows = 10; rows <= 240; rows++) {
    const tall = rows * timelineScale(rows).row;
    const height = tall <= LOW ? LOW : HIGH;
    assert.ok(tall >= 0.67 * height, rows + " rows leave " + (height - tall) + " px");
    if (rows > 60) assert.ok(tall <= HIGH, rows + " rows need a scroll bar");
  }
  for (const rows of [200, 240]) assert.equal(rows * timelineScale(rows).row, HIGH);
});

test("the bracket moves as many steps as it shows, and never past an end", () => {
  const sight = { from: 101, to: 160 };
  assert.deepEqual(panned(sight, RUN, 150), { span: 60, to: 150 });
  assert.deepEqual(panned(sight, RUN, 0), { span: 60, to: 60 });
  assert.deepEqual(panned(sight, RUN, 999), { span: 60, to: null });
  assert.deepEqual(stepsInSight(panned(sight, RUN, 0), RUN, 30), { from: 1, to: 60 });
});

test("every kind of span and end has a path, in rows of every height", () => {
  const kinds = ["waiting", "prefill", "decode", "preempted", "swapped", "paused"];
  const spans = kinds.map((kind, at) => ({ kind, first: at, last: at, tokens: 4, cached: kind === "prefill" ? 4 : 0 }));
  const ends = ["stop", "length", "cancelled", "finished"];
  const columns = kinds.map((_, at) => ({ step: at + 1 }));
  for (const [rows, height] of [[12, 20], [15, 16], [60, 12], [61, 6], [201, 2]]) {
    const scale = timelineScale(rows);
    assert.equal(scale.row, height);
    const view = { columns, rows: ends.map(reason => ({ spans, end: { column: 6, reason } })) };
    const paths = timelinePaths(view, { from: 1, to: 6 }, 900, scale);
    const drawn = Object.keys(paths).filter(name => paths[name]);
    const marks = height >= 12 ? ["waiting", "stop", "length", "broken", "unknown"] : [];
    assert.deepEqual(drawn.sort(), ["cached", "prefill", "decode", "preempted", "swapped", "paused", ...marks].sort());
    assert.ok(!/NaN|undefined/.test(Object.values(paths).join("")));
  }
});
