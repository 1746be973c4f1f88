// The nodes that a request runs through, or ran through as far as they are still there.

import { isChoiceOf } from "./request_pick.js";
import { pathTo } from "./tree_model.js";

export function requestPath(run, model, request, step) {
  const running = [...model.nodes.values()].filter((node) => node.holders.some((label) => isChoiceOf(label, request)));
  if (running.length) return running;
  const frame = lastFrameOf(run, request, step);
  if (!frame) return [];
  let at = deepestNodeOf(frame, request);
  while (at && !isThere(model, at.id)) at = frame.nodes.get(at.parent);
  return at ? pathTo(model.nodes, model.nodes.get(at.id)) : [];
}

function isThere(model, id) {
  return model.nodes.has(id) && !model.nodes.get(id).gone;
}

// The newest frame up to the step in which the request had a table.
function lastFrameOf(run, label, step) {
  for (const record of run.steps(-Infinity, step).reverse()) {
    if (!(record.left ?? []).some(([left]) => left === label)) continue;
    const frame = run.frameAt(record.step - 1);
    if (frame.tables.has(label)) return frame;
  }
  return null;
}

// The node that owns the deepest tree block in the request's table.
export function deepestNodeOf(frame, label) {
  const table = frame.tables.get(label);
  const places = new Map((table ? table.blocks : []).map((block, i) => [block, i]));
  let best = -1;
  let found;
  for (const node of frame.nodes.values()) {
    for (const block of node.blocks) {
      if (!(places.get(block) > best)) continue;
      best = places.get(block);
      found = node;
    }
  }
  return found;
}
