// Reads {recording, deltas, asked} and writes the frame (or the block counts) at each step asked for.

import { readFileSync } from "node:fs";
import { blockStates, createRun } from "../../../widgets/yaie_widgets/live/js/core_run.js";

// The frame in the form of a recording's base.
function baseOf(frame) {
  return {
    step: frame.step,
    nodes: [...frame.nodes.values()].map(n => [n.id, n.parent, n.namespace, n.start, n.token_ids, n.blocks, n.used_step]),
    tables: [...frame.tables].map(([label, table]) => [label, table.blocks, table.num_computed]),
    waiting: [...frame.waiting],
  };
}

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
