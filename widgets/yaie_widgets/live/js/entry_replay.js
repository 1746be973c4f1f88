// The flight recorder of `%yaie replay`: one cursor for timeline, block map and tree.

import { mount } from "./core_solo.js";
import { createBlocks } from "./blocks.js";
import { createTimeline } from "./timeline.js";
import { createTree } from "./tree.js";

const PARTS = [
  { title: "Scheduler timeline", create: ctx => createTimeline(ctx) },
  { title: "KV blocks", create: ctx => createBlocks(ctx) },
  { title: "Radix tree", create: ctx => createTree(ctx) },
];

function render({ model, el: host }) {
  return mount({ model, el: host, title: "Flight recorder", parts: PARTS, withBar: true });
}

export default { render };
