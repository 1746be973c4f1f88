// What the timeline says in words.
import { count, counted, ms, visibleLine } from "./core_format.js";
import { requestOfLabel } from "./lives.js";
import { totalMs } from "./story.js";

export const EMPTY_TIMELINE = "No step recorded yet. Run a %%generate cell.";

const stepWords = (first, last) =>
  (first === last ? "step " + count(first) : "steps " + count(first) + " to " + count(last));

// "4 requests · steps 1 to 60 · 1.2 s".
export function windowWords(view) {
  const { columns, rows, hidden } = view;
  const requests = new Set(rows.map(row => requestOfLabel(row.label))).size;
  const number = rows.length + hidden;
  const named = counted(requests, "request");
  const words = [requests === number ? named : named + " in " + counted(number, "row")];
  const [first, last] = [columns[0], columns.at(-1)];
  words.push(stepWords(first.step, last.step));
  words.push(ms(Math.max(0, (last.time - first.time) * 1000 + totalMs(first))));
  return words.join(" · ");
}

// What has no row: "+3 finished earlier".
export function moreWords(view) {
  const words = [];
  if (view.hidden) words.push("+" + count(view.hidden) + " more in these steps");
  if (view.finishedEarlier) words.push("+" + count(view.finishedEarlier) + " finished earlier");
  return words.join("   ");
}

// How to come to the steps that are not in sight.
export function moveWords(sight, run) {
  if (sight.from <= run.first && sight.to >= run.last) return "";
  const part = count(sight.to - sight.from + 1) + " of " + counted(run.last - run.first + 1, "step");
  return part + ": drag the bracket above or use \u2190 \u2192 on it; 0 shows all";
}

// All of the picture in a sentence.
export function timelineSentence(view) {
  const swaps = view.columns.reduce((sum, one) => sum + one.swapped.length, 0);
  const lost = view.columns.reduce((sum, one) => sum + one.preempted.length, swaps);
  const ended = view.rows.filter(row => row.end).length;
  const words = [windowWords(view), counted(ended, "row") + " ended", counted(lost, "preemption")];
  if (swaps) words.push(count(swaps) + " of them swapped");
  return "Scheduler timeline: " + words.join(", ") + ".";
}

// A bar: "r02: prefill, step 5, 13 tokens, 208 tokens from the cache".
export function barWords(view, row, span) {
  const name = visibleLine(row.label);
  if (!span) return name + ": " + row.state + (row.text ? " · " + visibleLine(row.text) : "");
  const words = [name + ": " + span.kind, stepWords(view.columns[span.first].step, view.columns[span.last].step)];
  if (span.kind === "prefill" || span.kind === "decode") words.push(counted(span.tokens, "token"));
  if (span.cached) words.push(counted(span.cached, "token") + " from the cache");
  return words.join(", ");
}

// A row for its label's tooltip: all of its name, its figures, more of its text than has room.
export function rowWords(row) {
  const words = [visibleLine(row.label) + ": " + row.state];
  if (row.prompt !== null) words.push(counted(row.prompt, "prompt token"));
  if (row.cached) words.push(count(row.cached) + " from the cache");
  if (row.output !== null) words.push(counted(row.output, "output token"));
  return words.join(", ") + (row.text ? ": " + visibleLine(row.text) : "");
}
