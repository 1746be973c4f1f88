// The strips of the dashboard as paths: groups, cuts, events, and room that grows by leaps.
import assert from "node:assert/strict";
import { test } from "node:test";
import * as paths from "../../../widgets/yaie_widgets/live/js/dashboard_paths.js";
import { cutTop, stepTime, totalWords } from "../../../widgets/yaie_widgets/live/js/dashboard_strips.js";

const { STRIP_HIGH, eventMarks, groupedSteps, linePath, slotsFor, stackPaths } = paths;

const numbers = text => text.match(/-?[\d.]+/g).map(Number);
const place = { left: 100, column: 10, floor: 40, top: 8, story: null };

test("the axis ends with the newest step, and very few do not fill it", () => {
  assert.deepEqual([1, 12, 13, 96, 4096].map(slotsFor), [12, 12, 13, 96, 4096]);
});

test("each step has a column of its own until there are more than pixels", () => {
  const shown = Array.from({ length: 10 }, (_, at) => at);
  assert.equal(groupedSteps(shown, 10, 600).length, 10);
  assert.deepEqual(groupedSteps(shown, 10, 4), [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]);
});

test("bars stack, and a column of several steps shows its most and marks its least", () => {
  const strip = { parts: [["a", "x", "bar", one => one.a], ["b", "y", "bar", one => one.b]] };
  const { paths, least, cut } = stackPaths(strip, [[{ a: 2, b: 2 }], [{ a: 1, b: 0 }, { a: 4, b: 1 }]], place);
  const [first, second] = paths.map(path => path.split("z").filter(Boolean).map(numbers));
  // x, floor, up, width, down: four of eight are half of the strip's height.
  assert.deepEqual(first.map(box => box.slice(0, 3)), [[100.5, 40, -10], [110.5, 40, -20]]);
  assert.deepEqual(second.map(box => box.slice(0, 3)), [[100.5, 30, -10], [110.5, 20, -5]]);
  assert.deepEqual(numbers(least).slice(0, 2), [110.5, 35]);
  assert.equal(cut, "");
});

test("what is higher than the strip is cut off and marked", () => {
  const strip = { parts: [["a", "x", "bar", one => one]] };
  const { paths, cut } = stackPaths(strip, [[80], [8]], place);
  assert.deepEqual(paths[0].split("z").filter(Boolean).map(numbers).map(box => box[2]), [-STRIP_HIGH, -STRIP_HIGH]);
  assert.equal(cut.split("M").length, 2);
  const line = linePath(one => one, [[80, 4], [4]], place);
  assert.equal(line.cut.split("M").length, 2);
  assert.deepEqual(numbers(line.path).slice(0, 4), [100, 20, 0, 20]);
});

test("one value far beyond all others does not hide them", () => {
  const scene = values => ({ shown: values });
  const value = one => one;
  const usual = Array.from({ length: 50 }, (_, at) => 10 + (at % 3));
  assert.equal(cutTop(scene([900, ...usual]), value), 1.25 * 12);
  assert.equal(cutTop(scene(usual), value), 12);
  assert.equal(cutTop(scene([1, 100]), value), 100);
  assert.equal(cutTop(scene([]), value), 0);
});

test("events that share the room of a mark are one mark", () => {
  const calm = { preempted: [], swapped: [], evicted: 0 };
  const four = [calm, { ...calm, preempted: ["a"], evicted: 2 }, { ...calm, swapped: ["b", "c"], evicted: 3 }, calm];
  const shown = four.map((one, at) => ({ ...one, step: at + 1 }));
  const marks = eventMarks(shown, 0, 20).map(one => [one.from, one.preempted, one.swapped, one.evicted]);
  assert.deepEqual(marks, [[2, 1, 0, 2], [3, 0, 2, 3]]);
  assert.deepEqual(eventMarks(shown, 0, 2.5), [{ x: 5, from: 1, to: 4, preempted: 1, swapped: 2, evicted: 5 }]);
});

test("figures have one notation", () => {
  const times = [0.04, 0.05, 12.25, 9999.94, 12345].map(stepTime);
  assert.deepEqual(times, ["0.0 ms", "0.1 ms", "12.3 ms", "9,999.9 ms", "12.3 s"]);
  const events = { preemptions: 7, swaps: 0, evictions: 8, copies: 9 };
  const totals = { running: 1, queued: 2, ended: 3, requests: 4, prompt: 1234567, output: 6, ...events };
  const words = Object.fromEntries(totalWords(totals, {}));
  assert.equal(words["Prompt tokens"], "1,234,567");
  assert.equal(words.Ended, "3 of 4");
  assert.equal(words.Memory, undefined);
  assert.equal(words.Preemptions, "7");
  assert.equal(Object.fromEntries(totalWords({ ...totals, swaps: 2 }, {})).Preemptions, "7, 2 swapped");
});
