// One row of the radix tree: made once, changed where its figures changed.

import { el, setAttr, setText } from "./core_dom.js";
import { count, counted, visibleLine } from "./core_format.js";
import { aroundHit } from "./tree_text.js";
import { nodeAge, nodeState } from "./tree_model.js";

const SPOKEN_TEXT = 160;
const MOST_TEXT = 600;

export function treeRow() {
  const parts = {};
  parts.indent = el("span", { class: "y-tree-indent" });
  parts.toggle = el("span", { class: "y-tree-toggle", "aria-hidden": "true" });
  parts.who = el("span", { class: "y-tree-who" });
  parts.before = el("span", {});
  parts.hit = el("mark", { class: "y-tree-hit" });
  parts.after = el("span", {});
  parts.words = el("span", { class: "y-tree-words" }, parts.before, parts.hit, parts.after);
  parts.more = el("span", { class: "y-tree-more" });
  const text = el("span", { class: "y-tree-text" }, parts.indent, parts.toggle, parts.who, parts.words, parts.more);
  parts.fill = el("i", { class: "y-tree-fill" });
  parts.lost = el("i", { class: "y-tree-lost" });
  parts.tick = el("i", { class: "y-tree-tick" });
  parts.bar = el("span", { class: "y-tree-bar", "aria-hidden": "true" }, parts.fill, parts.lost, parts.tick);
  for (const name of ["tokens", "blocks", "refs", "age"]) parts[name] = el("span", { class: "y-tree-num" });
  const figures = [parts.tokens, parts.blocks, parts.refs, parts.age];
  const node = el("div", { role: "treeitem", tabindex: "-1" }, text, parts.bar, ...figures);
  return { node, parts };
}

// look: {run, texts, step, axis, query, onPath, picked}.
export function paintTreeRow(made, row, look) {
  const { node, parts } = made;
  const kinds = { node: paintTreeNode, space: paintTreeSpace, more: paintTreeMore };
  setAttr(node, "aria-level", row.level);
  setAttr(node, "aria-posinset", row.place || null);
  setAttr(node, "aria-setsize", row.siblings || null);
  setAttr(node, "aria-expanded", row.open === null ? null : String(row.open));
  parts.indent.style.width = 16 * (row.level - 1) + "px";
  setText(parts.toggle, row.open === null ? "" : row.open ? "▾" : "▸");
  setText(parts.more, row.open === false ? "+" + count(row.hidden) + " more" : "");
  parts.bar.style.visibility = row.kind === "node" ? "" : "hidden";
  kinds[row.kind](made, row, look);
}

function paintTreeNode({ node, parts }, { node: tree }, look) {
  const state = nodeState(tree);
  const gone = tree.gone !== "";
  const text = look.texts.head(look.run, tree);
  const [before, hit, after] = aroundHit(look.query ? look.texts.whole(look.run, tree) : text, look.query);
  setText(parts.who, tree.holders.length === 1 ? tree.holders[0] : "");
  setText(parts.before, before || (hit ? "" : "(no text)"));
  setText(parts.hit, hit);
  setText(parts.after, after.slice(0, MOST_TEXT));
  parts.hit.hidden = !hit;
  paintTreeBar(parts, tree, look.axis, state);
  setText(parts.tokens, (gone ? "−" : "") + count(tree.tokens));
  setText(parts.blocks, (gone ? "−" : "") + count(tree.blocks.length));
  setText(parts.refs, count(tree.holders.length));
  setText(parts.age, nodeAge(tree, look.step));
  setAttr(parts.refs, "title", tree.holders.slice(0, 12).join(", ") || null);
  const marks = { path: look.onPath, picked: look.picked, gone };
  setAttr(node, "class", ["y-tree-row", ...Object.keys(marks).filter((mark) => marks[mark])].join(" "));
  setAttr(node, "aria-selected", String(look.picked));
  setAttr(node, "aria-label", spokenNode(tree, visibleLine(text.slice(0, SPOKEN_TEXT)), nodeAge(tree, look.step)));
}

function spokenNode(tree, text, age) {
  const figures = [counted(tree.tokens, "token"), counted(tree.blocks.length, "block")];
  figures.push(counted(tree.holders.length, "reference"));
  if (tree.grew) figures.push("grew in this step");
  if (tree.lost && !tree.gone) figures.push("lost " + counted(tree.lost, "token") + " in this step");
  return [text, ...figures, age].join(", ");
}

function paintTreeBar(parts, tree, axis, state) {
  const gone = tree.gone !== "";
  const end = tree.start + tree.tokens;
  setAttr(parts.fill, "class", "y-tree-fill " + state);
  parts.fill.hidden = gone;
  parts.lost.hidden = !gone && !tree.lost;
  parts.tick.hidden = !tree.grew || gone;
  placeTreeBar(parts.fill, tree.start, end, axis);
  placeTreeBar(parts.lost, gone ? tree.start : end, gone ? end : end + tree.lost, axis);
  placeTreeBar(parts.tick, end, end, axis);
}

function placeTreeBar(node, from, to, axis) {
  node.style.left = ((100 * from) / axis).toFixed(3) + "%";
  node.style.width = ((100 * (to - from)) / axis).toFixed(3) + "%";
}

function paintTreeSpace(made, row) {
  const { tokens, blocks } = row.sum;
  paintPlainRow(made, "Namespace " + row.namespace, tokens, blocks, "y-tree-row space");
}

function paintTreeMore(made, row) {
  paintPlainRow(made, "+" + count(row.hidden) + " more", null, null, "y-tree-row more");
}

function paintPlainRow({ node, parts }, words, tokens, blocks, kind) {
  setText(parts.who, "");
  setText(parts.before, words);
  setText(parts.after, "");
  parts.hit.hidden = true;
  setText(parts.tokens, tokens === null ? "" : count(tokens));
  setText(parts.blocks, blocks === null ? "" : count(blocks));
  setText(parts.refs, "");
  setText(parts.age, "");
  setAttr(node, "class", kind);
  setAttr(node, "aria-label", words + (tokens === null ? "" : ", " + counted(tokens, "token")));
}
