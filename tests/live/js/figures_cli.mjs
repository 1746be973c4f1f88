// Reads a recording and prints what the views make of it: figures of the dashboard, rows of the timeline, the trace.
import { readFileSync } from "node:fs";
import { STRIPS, engineWords, totalWords } from "../../../widgets/yaie_widgets/live/js/dashboard_strips.js";
import { createRun } from "../../../widgets/yaie_widgets/live/js/core_run.js";
import { hitRate, rateOf, storyOf, totalsOf } from "../../../widgets/yaie_widgets/live/js/story.js";
import { outputAt, timelineView } from "../../../widgets/yaie_widgets/live/js/timeline_model.js";
import { chromeTrace } from "../../../widgets/yaie_widgets/live/js/timeline_trace.js";

const { recording, windows, parts } = JSON.parse(readFileSync(0, "utf8"));

// With `parts`, the recording arrives in as many deltas, and the story is read after each of them.
function runInParts() {
  const steps = recording.steps;
  const run = createRun({ ...recording, steps: [] });
  const each = Math.ceil(steps.length / parts) || 1;
  storyOf(run);
  for (let at = 0; at < steps.length; at += each) {
    run.append({ steps: steps.slice(at, at + each) });
    storyOf(run);
  }
  return run;
}

const run = parts > 1 ? runInParts() : createRun(recording);
const story = storyOf(run);

function plainRow(row, columns) {
  const { label, text, state, prompt, cached, output, spans, end } = row;
  return { label, text, state, prompt, cached, output, spans, end, outputs: columns.map(one => outputAt(row, one.at)) };
}

function plainWindow([first, last]) {
  const view = timelineView(run, story, first, last);
  return {
    ...view,
    columns: view.columns.map(one => one.step),
    rows: view.rows.map(row => plainRow(row, view.columns)),
    trace: chromeTrace(run, timelineView(run, story, first, last, Infinity)),
  };
}

const figures = story.figures.map(one => ({
  ...one,
  prompt: story.prompt(one),
  hit: story.hit(one),
  rate: rateOf(one),
  hit_rate: hitRate(story, one),
}));
const totals = totalsOf(story);
const scene = { engine: run.engine, story, shown: story.figures };
const said = {
  engine: engineWords(run.engine),
  totals: totalWords(totals, run.engine),
  strips: STRIPS.map(strip => {
    const words = story.figures.map(one => strip.words(scene, one));
    return [strip.title, strip.top(scene), strip.edge(scene), words];
  }),
};
process.stdout.write(JSON.stringify({ figures, totals, said, windows: (windows ?? []).map(plainWindow) }));
