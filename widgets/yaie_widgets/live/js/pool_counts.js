// How many blocks are cached, held and shared after each step. A step costs what it changed. `base` is the frame before
// the first one.

export function createPoolCounts(base) {
  const counts = { free: 0, cached: 0, held: 0, shared: 0 };
  const tables = new Map();
  const nodes = new Map();
  const holders = new Map();
  const owners = new Map();

  const state = block => {
    const held = holders.get(block) ?? 0;
    if (held) return held === 1 ? "held" : "shared";
    return owners.get(block) ? "cached" : "free";
  };
  const use = (users, blocks, by) => {
    for (const block of blocks) {
      counts[state(block)] -= 1;
      users.set(block, (users.get(block) ?? 0) + by);
      counts[state(block)] += 1;
    }
  };
  // The list of `key` keeps its first blocks; others follow.
  const keep = (lists, users, key, kept, blocks) => {
    if (!lists.has(key)) lists.set(key, []);
    use(users, lists.get(key).splice(kept), -1);
    lists.get(key).push(...blocks);
    use(users, blocks, 1);
  };
  const drop = (lists, users, key) => {
    use(users, lists.get(key) ?? [], -1);
    lists.delete(key);
  };

  for (const [label, table] of base.tables) keep(tables, holders, label, 0, table.blocks);
  for (const [id, node] of base.nodes) keep(nodes, owners, id, 0, node.blocks);
  return {
    counts,
    apply(step) {
      for (const [label, kept, blocks] of step.tables ?? []) keep(tables, holders, label, kept, blocks);
      for (const [label] of step.left ?? []) drop(tables, holders, label);
      if (step.wiped) for (const id of [...nodes.keys()]) drop(nodes, owners, id);
      for (const node of step.nodes ?? []) keep(nodes, owners, node[0], node[6], node[7]);
      for (const id of step.removed ?? []) drop(nodes, owners, id);
    },
  };
}
