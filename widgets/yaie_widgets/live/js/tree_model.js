// The radix tree of a frame: children, sums, holders, and what the step did to each node. No DOM.

import { counted } from "./core_format.js";

// frame and before are the frames after this step and after the one before (or null), step is the step's record.
// kept is the orders of an earlier model: what it has stays in its place.
// Returns nodes (Map id -> node), below (Map parent id -> ids in drawing order), roots, totals and the axis length.
export function treeModel(frame, before, step, kept = null) {
  const nodes = new Map();
  for (const raw of frame.nodes.values()) nodes.set(raw.id, treeNode(raw, frame.nodes));
  markHolders(nodes, frame);
  markTreeStep(nodes, frame, before, step);
  const below = childrenOf(nodes);
  const roots = [...below.keys()].filter((id) => !nodes.has(id)).sort((a, b) => a - b);
  const order = treeTopDown(roots, below);
  sumUpTree(nodes, order);
  for (const [parent, ids] of below) below.set(parent, arrangeSiblings(ids, nodes, below, kept && kept.get(parent)));
  return { nodes, below, roots, totals: treeTotals(nodes), namespaces: countNamespaces(nodes), end: lastTreeEnd(nodes) };
}

function treeNode(raw, known) {
  return {
    id: raw.id,
    parent: raw.parent,
    top: !known.has(raw.parent),
    namespace: raw.namespace,
    start: raw.start,
    ids: raw.token_ids,
    tokens: raw.token_ids.length,
    blocks: raw.blocks,
    used: raw.used_step,
    holders: [],
    // What the step did: grew, lost (tokens cut from the end), gone ("evicted" or "freed").
    grew: false,
    lost: 0,
    gone: "",
    sum: { nodes: 0, tokens: 0, blocks: 0 }
  };
}

// A running request passes through the node that owns the deepest tree block of its table, and all above it.
function markHolders(nodes, frame) {
  const owner = new Map();
  for (const node of nodes.values()) for (const block of node.blocks) owner.set(block, node);
  for (const [label, table] of frame.tables) {
    for (const node of pathTo(nodes, deepestNode(owner, table.blocks))) node.holders.push(label);
  }
}

function deepestNode(owner, blocks) {
  for (let i = blocks.length - 1; i >= 0; i--) if (owner.has(blocks[i])) return owner.get(blocks[i]);
  return undefined;
}

// From the top to the node; empty without one.
export function pathTo(nodes, node) {
  const path = [];
  for (let at = node; at; at = nodes.get(at.parent)) path.push(at);
  return path.reverse();
}

function markTreeStep(nodes, frame, before, step) {
  for (const id of [...(step.added ?? []), ...(step.extended ?? [])]) if (nodes.has(id)) nodes.get(id).grew = true;
  if (!before || before === frame) return;
  const evicted = new Set(step.evicted ?? []);
  const ended = [];
  for (const old of before.nodes.values()) {
    const node = nodes.get(old.id);
    const cut = node ? old.start + old.token_ids.length - node.start - node.tokens : 0;
    if (cut > 0) node.lost = cut;
    if (!node) ended.push(old);
  }
  // An evicted node stays for one step, below the parent it had, which may be gone with it.
  for (const old of ended) {
    const ghost = treeNode(old, before.nodes);
    ghost.gone = old.blocks.length && !old.blocks.some((block) => evicted.has(block)) ? "freed" : "evicted";
    if (step.split) withoutUpper(ghost, nodes);
    nodes.set(old.id, ghost);
  }
}

// A node that was split before its end went is gone from where its upper part ends.
function withoutUpper(ghost, nodes) {
  for (const node of nodes.values()) {
    if (node.gone || node.parent !== ghost.parent || node.start !== ghost.start || node.ids[0] !== ghost.ids[0]) continue;
    ghost.parent = node.id;
    ghost.start += node.tokens;
    ghost.ids = ghost.ids.slice(node.tokens);
    ghost.tokens = ghost.ids.length;
    ghost.blocks = ghost.blocks.filter((block) => !node.blocks.includes(block));
    ghost.top = false;
    return withoutUpper(ghost, nodes);
  }
}

function childrenOf(nodes) {
  const below = new Map();
  for (const node of nodes.values()) {
    if (!below.has(node.parent)) below.set(node.parent, []);
    below.get(node.parent).push(node.id);
  }
  return below;
}

function treeTopDown(roots, below) {
  const order = roots.flatMap((root) => below.get(root));
  for (let i = 0; i < order.length; i++) for (const id of below.get(order[i]) ?? []) order.push(id);
  return order;
}

// What is gone counts nowhere.
function sumUpTree(nodes, order) {
  for (const id of order.toReversed()) {
    const node = nodes.get(id);
    if (!node.gone) addSums(node.sum, { nodes: 1, tokens: node.tokens, blocks: node.blocks.length });
    if (nodes.has(node.parent)) addSums(nodes.get(node.parent).sum, node.sum);
  }
}

function addSums(sum, other) {
  for (const key of Object.keys(sum)) sum[key] += other[key];
}

// Most tokens below first. With an earlier order, its nodes keep their places and new ones come behind them; the
// upper part of a split node takes the place of the node it was cut from.
function arrangeSiblings(ids, nodes, below, earlier) {
  ids.sort((a, b) => nodes.get(b).sum.tokens - nodes.get(a).sum.tokens || a - b);
  if (!earlier) return ids;
  const place = new Map(earlier.map((id, i) => [id, i]));
  const placeOf = (id) => place.get(id) ?? place.get((below.get(id) ?? []).find((child) => place.has(child)));
  return ids
    .map((id, i) => [placeOf(id) ?? earlier.length + i, id])
    .sort((a, b) => a[0] - b[0])
    .map((pair) => pair[1]);
}

function treeTotals(nodes) {
  const totals = { nodes: 0, tokens: 0, blocks: 0 };
  for (const node of nodes.values()) if (node.top && !node.gone) addSums(totals, node.sum);
  return totals;
}

function countNamespaces(nodes) {
  return new Set([...nodes.values()].filter((node) => !node.gone).map((node) => node.namespace)).size;
}

function lastTreeEnd(nodes) {
  let end = 0;
  for (const node of nodes.values()) end = Math.max(end, node.start + node.tokens + (node.gone ? 0 : node.lost));
  return end;
}

// The block state a node stands for.
export function nodeState(node) {
  return ["cached", "held"][node.holders.length] ?? "shared";
}

// "in use", "this step", "5 steps".
export function nodeAge(node, step) {
  if (node.gone) return node.gone;
  if (node.holders.length) return "in use";
  const age = step - node.used;
  if (age <= 0) return "this step";
  return counted(age, "step");
}
