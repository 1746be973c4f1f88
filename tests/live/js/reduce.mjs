// Reads {recording, deltas, asked} and writes the frame (or the block counts) at each step asked for.

import { readFileSync } from "node:fs";
import { baseOf } from "../../../widgets/yaie_widgets/live/js/core_frame.js";
import { blockStates, createRun } from "../../../widgets/yaie_widgets/live/js/core_run.js";

const given = JSON.parse(readFileSync(0, "utf8"));
const run = createRun(given.recording);
for (const delta of given.deltas) run.append(delta);
const answer = given.asked.map(step => {
  const frame = run.frameAt(step);
  if (!given.blocks) return baseOf(frame);
  const { free, cached, held, shared } = blockStates(run, frame);
  return [free, cached, held, shared];
});
process.stdout.write(JSON.stringify(answer));
