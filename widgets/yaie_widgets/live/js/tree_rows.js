// Which rows of the radix tree are drawn, in order. No DOM.

const MOST_ROWS = 200;
const SIBLINGS = 40;

// How many levels may stand open without more than 200 rows; what is below opens when asked.
export function openLevels(model) {
  let level = model.roots.flatMap((root) => model.below.get(root));
  let rows = 0;
  for (let depth = 1; level.length; depth++) {
    rows += level.length;
    if (rows > MOST_ROWS) return Math.max(1, depth - 1);
    level = level.flatMap((id) => model.below.get(id) ?? []);
  }
  return Infinity;
}

// choice: {closed, opened: Set of keys, levels: open ones, limits: Map key -> siblings shown, path: Set of ids,
// hits: Set of ids or null}.
// Rows are {key, kind: "node" | "space" | "more", node, level, open, hidden, place, siblings}; open is null for a leaf.
export function treeRows(model, choice) {
  const kept = choice.hits && keptByHits(model, choice.hits);
  const isOpen = (key, level) => kept || choice.opened.has(key) || !(choice.closed.has(key) || level >= choice.levels);
  const rows = [];
  const stack = [];
  const push = (list) => stack.push(...list.toReversed());
  push(model.roots.flatMap((root) => topTreeRows(model, root, choice, kept)));
  while (stack.length) {
    const row = stack.pop();
    rows.push(row);
    if (row.open === null || row.kind === "more") continue;
    row.open = Boolean(opensPath(model, row, choice) || isOpen(row.key, row.level));
    if (row.open) push(treeRowsBelow(model, row.kind === "space" ? row.root : row.node.id, row.level + 1, choice, kept));
    else row.hidden = row.kind === "space" ? row.sum.nodes : row.node.sum.nodes - (row.node.gone ? 0 : 1);
  }
  return rows;
}

function opensPath(model, row, choice) {
  if (choice.closed.has(row.key) || row.kind === "space") return false;
  return choice.path.has(row.node.id) && (model.below.get(row.node.id) ?? []).some((id) => choice.path.has(id));
}

// Nodes of a salted namespace stand below a row that names it.
function topTreeRows(model, root, choice, kept) {
  const ids = model.below.get(root);
  const namespace = model.nodes.get(ids[0]).namespace;
  if (!namespace) return treeRowsBelow(model, root, 1, choice, kept);
  if (kept && !ids.some((id) => kept.has(id))) return [];
  const sum = { nodes: 0, tokens: 0, blocks: 0 };
  for (const id of ids) for (const key of Object.keys(sum)) sum[key] += model.nodes.get(id).sum[key];
  return [{ key: "space" + root, kind: "space", root, namespace, sum, level: 1, open: true, hidden: 0, place: 1, siblings: 1 }];
}

function treeRowsBelow(model, parent, level, choice, kept) {
  const ids = (model.below.get(parent) ?? []).filter((id) => !kept || kept.has(id));
  const limit = choice.limits.get("more" + parent) ?? SIBLINGS;
  const shown = ids.filter((id, i) => i < limit || choice.path.has(id));
  const rows = shown.map((id, i) => treeNodeRow(model, id, level, i + 1, ids.length));
  if (shown.length < ids.length) rows.push(treeMoreRow(parent, level, ids.length - shown.length, limit));
  return rows;
}

function treeNodeRow(model, id, level, place, siblings) {
  const open = model.below.has(id) ? true : null;
  return { key: "n" + id, kind: "node", node: model.nodes.get(id), level, open, hidden: 0, place, siblings };
}

function treeMoreRow(parent, level, hidden, limit) {
  return { key: "more" + parent, kind: "more", level, open: null, hidden, limit: 2 * limit, place: 0, siblings: 0 };
}

// The hits and everything above them.
function keptByHits(model, hits) {
  const kept = new Set();
  for (const id of hits) {
    for (let at = model.nodes.get(id); at && !kept.has(at.id); at = model.nodes.get(at.parent)) kept.add(at.id);
  }
  return kept;
}
