// The block pool of a frame, cell by cell, with what the step did to each. No DOM.

import { blockStates } from "./core_run.js";
import { deepestNodeOf } from "./tree_path.js";

export const STATES = ["free", "cached", "held", "shared"];
export const EVENTS = ["written", "copied", "evicted", "swapped"];

// Cells in order of their number, and how many there are of each state and event.
export function blocksModel(run, frame, step) {
  const states = blockStates(run, frame);
  const model = { blockSize: run.engine.block_size, cells: states.cells, counts: {}, copiedFrom: new Map() };
  model.evicted = new Set(step.evicted ?? []);
  model.swapped = swapsOf(step);
  model.hostHeld = step.host_held ?? 0;
  for (const [source, target] of step.copied ?? []) model.copiedFrom.set(target, source);
  for (const state of STATES) model.counts[state] = states[state];
  for (const event of EVENTS) model.counts[event] = 0;
  markGrown(model, run, frame, step);
  for (const cell of states.cells) if (cell.written) model.counts.written++;
  model.counts.copied = model.copiedFrom.size;
  model.counts.evicted = model.evicted.size;
  model.counts.swapped = model.swapped.size;
  return model;
}

// What the words say of each block of this pool that went out or came in. Block n of the host is called -1 - n.
function swapsOf(step) {
  const swaps = new Map();
  for (const [source, target] of step.swapped ?? []) {
    if (target < 0) swaps.set(source, "swapped out to host block " + (-1 - target));
    else swaps.set(target, "swapped in from host block " + (-1 - source));
  }
  return swaps;
}

// The tables of requests that ended in the step are gone, but what they wrote lies in the nodes that grew.
function markGrown(model, run, frame, step) {
  const before = run.frameAt(frame.step - 1);
  for (const id of [...(step.added ?? []), ...(step.extended ?? [])]) {
    const node = frame.nodes.get(id);
    if (!node) continue;
    const old = before.nodes.get(id);
    const from = old ? Math.max(node.start, old.start + old.token_ids.length) : node.start;
    const first = Math.floor(node.start / model.blockSize);
    const last = Math.floor((node.start + node.token_ids.length - 1) / model.blockSize);
    for (let at = Math.floor(from / model.blockSize); at <= last; at++) {
      const cell = model.cells[node.blocks[at - first]];
      if (cell) cell.written = true;
    }
  }
}

// What the step did to a block, as words that are also class names.
export function eventsOf(model, cell) {
  const happened = [];
  if (cell.written) happened.push("written");
  if (model.copiedFrom.has(cell.id)) happened.push("copied");
  if (model.evicted.has(cell.id)) happened.push("evicted");
  if (model.swapped.has(cell.id)) happened.push("swapped");
  return happened;
}

// The number by which cells name a request: that of its id where it has one.
export function requestMark(run, label) {
  const found = /^req-(\d+)(?:\/|$)/.exec(label);
  return found ? found[1] : String(Object.keys(run.requests).indexOf(label) + 1);
}

// What is written into a cell.
export function cellMark(run, cell) {
  if (cell.state === "shared") return "×" + cell.holders.length;
  return cell.state === "held" ? requestMark(run, cell.holders[0]) : "";
}

// Which logical block a cell is: by the table of a holder, else by its node.
export function logicalOf(frame, cell, blockSize) {
  if (cell.holders.length) return frame.tables.get(cell.holders[0]).blocks.indexOf(cell.id);
  const node = frame.nodes.get(cell.node);
  return node ? Math.floor(node.start / blockSize) + node.blocks.indexOf(cell.id) : -1;
}

// The token ids of the used slots, as far as the tree has them.
export function tokensOf(frame, cell, blockSize) {
  const from = logicalOf(frame, cell, blockSize) * blockSize;
  const ids = [];
  for (const node of pathOfCell(frame, cell)) {
    ids.push(...node.token_ids.slice(Math.max(0, from - node.start), Math.max(0, from + cell.used - node.start)));
  }
  return ids;
}

// The nodes whose tokens a block can hold, from the top.
function pathOfCell(frame, cell) {
  let at = frame.nodes.get(cell.node) ?? deepestNodeOf(frame, cell.holders[0]);
  const path = [];
  for (; at; at = frame.nodes.get(at.parent)) path.unshift(at);
  return path;
}

// What the step did, in words.
export function eventWords(model, frame, step, cell) {
  const words = [];
  if (cell.written) words.push(["written", ...writersOf(frame, step, cell)].join(" by "));
  if (model.copiedFrom.has(cell.id)) words.push("copied from block " + model.copiedFrom.get(cell.id));
  if (model.evicted.has(cell.id)) words.push("old content evicted");
  if (model.swapped.has(cell.id)) words.push(model.swapped.get(cell.id));
  if (!words.length && (step.allocated ?? []).includes(cell.id)) words.push("allocated");
  if (!words.length && (step.freed ?? []).includes(cell.id)) words.push("freed");
  return words.join(", ") || "no change";
}

// "prefill" or "decode" where one of them it must have been: by a holder, else by those that ended in the step.
function writersOf(frame, step, cell) {
  const batch = step.batch ?? [];
  const held = batch.filter(([label]) => cell.holders.includes(label));
  const writers = held.length ? held : batch.filter(([label]) => !frame.tables.has(label));
  const kinds = new Set(writers.map((entry) => entry[1]));
  return kinds.size === 1 ? [...kinds] : [];
}

// Where an arrow key leads in a grid of total blocks, or null for any other key.
export function gridTarget(key, id, columns, total) {
  const start = id - (id % columns);
  const moves = {
    ArrowRight: id + 1,
    ArrowLeft: id - 1,
    ArrowDown: id + columns,
    ArrowUp: id - columns,
    Home: start,
    End: Math.min(start + columns, total) - 1,
    PageDown: id + 8 * columns,
    PageUp: id - 8 * columns
  };
  if (!(key in moves)) return null;
  return moves[key] >= 0 && moves[key] < total ? moves[key] : id;
}

// Columns and cell size in pixels for a pool of total blocks in a width; size 0 fills the width.
export function gridShape(total, width) {
  if (total <= 256) return { columns: 20, size: 0 };
  if (total <= 1024) return { columns: tensThatFit(width, 14), size: 12 };
  const size = [12, 11, 10, 9, 8, 7, 6, 5, 4].find((px) => Math.ceil(total / tensThatFit(width, px)) * px <= 384) ?? 3;
  return { columns: tensThatFit(width, size), size };
}

function tensThatFit(width, pitch) {
  return Math.max(10, Math.floor(width / pitch / 10) * 10);
}
