// A frame of the recording and how a step changes it. Must agree with the engine's own tape, which the tests compare.

// Whether one that left in this state is queued again: preempted ("waiting"), or swapped to host blocks.
export const isPutBack = state => state === "waiting" || state === "swapped";

export function frameOf(base) {
  return {
    step: base.step,
    nodes: new Map(base.nodes.map(([id, parent, namespace, start, token_ids, blocks, used_step]) =>
      [id, { id, parent, namespace, start, token_ids, blocks, used_step }])),
    tables: new Map(base.tables.map(([label, blocks, num_computed]) => [label, { blocks, num_computed }])),
    waiting: new Set(base.waiting),
  };
}

export function copyFrame(frame) {
  const { step, nodes, tables, waiting } = frame;
  return { step, nodes: new Map(nodes), tables: new Map(tables), waiting: new Set(waiting) };
}

// `list` as it is after its first `kept` items were followed by `more`: in place, or as a list of its own.
function spliced(list, kept, more, own) {
  if (!own) return list.slice(0, kept).concat(more);
  list.length = kept;
  for (const item of more) list.push(item);
  return list;
}

// Goes on by one step. Nodes and tables that other frames may share are replaced, not changed; `fresh` holds those that
// belong to this frame alone.
export function applyStep(frame, step, fresh = new Set()) {
  const { nodes, tables, waiting } = frame;
  const take = (map, key, value) => {
    map.set(key, value);
    fresh.add(value);
  };
  frame.step = step.step;
  for (const label of step.arrived ?? []) waiting.add(label);
  for (const [label] of step.admitted ?? []) waiting.delete(label);
  for (const [label, kept, blocks, num_computed] of step.tables ?? []) {
    const old = tables.get(label);
    const own = fresh.has(old);
    take(tables, label, { blocks: spliced(old?.blocks ?? [], kept, blocks, own), num_computed });
  }
  for (const [label, state] of step.left ?? []) {
    tables.delete(label);
    waiting.delete(label);
    if (isPutBack(state)) waiting.add(label);
  }
  if (step.wiped) nodes.clear();
  for (const [id, parent, namespace, start, tokensKept, tokens, blocksKept, blocks, used_step] of step.nodes ?? []) {
    const old = nodes.get(id);
    const own = fresh.has(old);
    take(nodes, id, {
      id, parent, namespace, start, used_step,
      token_ids: spliced(old?.token_ids ?? [], tokensKept, tokens, own),
      blocks: spliced(old?.blocks ?? [], blocksKept, blocks, own),
    });
  }
  for (const id of step.removed ?? []) nodes.delete(id);
  for (const [id, used_step] of step.used ?? []) {
    const node = nodes.get(id);
    if (fresh.has(node)) node.used_step = used_step;
    else if (node) nodes.set(id, { ...node, used_step });
  }
  return frame;
}
