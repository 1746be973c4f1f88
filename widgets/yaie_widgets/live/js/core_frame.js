// A frame of the recording and how a step changes it. Must agree with the engine's own tape, which the tests compare.

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

// The frame in the form of a recording's base.
export function baseOf(frame) {
  return {
    step: frame.step,
    nodes: [...frame.nodes.values()].map(n => [n.id, n.parent, n.namespace, n.start, n.token_ids, n.blocks, n.used_step]),
    tables: [...frame.tables].map(([label, table]) => [label, table.blocks, table.num_computed]),
    waiting: [...frame.waiting],
  };
}

const joined = (list, kept, more) => (kept === list.length && !more.length ? list : list.slice(0, kept).concat(more));

// Goes on by one step. Nodes and tables are replaced, never changed: copies of a frame share them.
export function applyStep(frame, step) {
  const { nodes, tables, waiting } = frame;
  frame.step = step.step;
  for (const label of step.arrived ?? []) waiting.add(label);
  for (const [label] of step.admitted ?? []) waiting.delete(label);
  for (const [label, kept, blocks, num_computed] of step.tables ?? []) {
    tables.set(label, { blocks: joined(tables.get(label)?.blocks ?? [], kept, blocks), num_computed });
  }
  for (const [label, state] of step.left ?? []) {
    tables.delete(label);
    waiting.delete(label);
    if (state === "waiting") waiting.add(label);
  }
  if (step.wiped) nodes.clear();
  for (const [id, parent, namespace, start, tokensKept, tokens, blocksKept, blocks, used_step] of step.nodes ?? []) {
    const old = nodes.get(id);
    nodes.set(id, {
      id, parent, start, used_step,
      namespace: old ? old.namespace : namespace,
      token_ids: joined(old?.token_ids ?? [], tokensKept, tokens),
      blocks: joined(old?.blocks ?? [], blocksKept, blocks),
    });
  }
  for (const id of step.removed ?? []) nodes.delete(id);
  for (const [id, used_step] of step.used ?? []) {
    const node = nodes.get(id);
    if (node) nodes.set(id, { ...node, used_step });
  }
  return frame;
}
