// The radix tree as a table: what is cached, who uses it, and what the step added and took.

import { el, setText } from "./core_dom.js";
import { count, counted } from "./core_format.js";
import { requestPick } from "./request_pick.js";
import { nodeState, treeModel } from "./tree_model.js";
import { openLevels, treeRows } from "./tree_rows.js";
import { paintTreeRow, treeRow } from "./tree_row.js";
import { findNodes, markEdges, treeTexts } from "./tree_text.js";
import { requestPath } from "./tree_path.js";
import { axisLength, paintTreeAxis } from "./tree_axis.js";
import { treeKeys } from "./tree_keys.js";

const EMPTY = "The cache holds no prefix yet. Run a %%generate cell.";
const MOST_ROWS_KEPT = 400;
const LEGEND = [
  ["cached", "cached: no running request"],
  ["held", "held by one"],
  ["shared", "shared by two or more"],
  ["grew", "grew in this step"],
  ["lost", "evicted in this step"]
];

export function createTree(ctx, options = {}) {
  if (options.request) ctx.selection = { ...ctx.selection, request: options.request };
  const parts = treeParts(ctx);
  const state = {
    choice: {
      closed: new Set(),
      opened: new Set(),
      limits: new Map(),
      levels: options.depth ?? Infinity,
      path: new Set(),
      hits: null
    },
    texts: treeTexts(),
    rows: [],
    made: new Map(),
    axis: 1,
    query: "",
    at: null,
    depth: options.depth ?? null
  };
  const update = () => updateTree(ctx, parts, state);
  wireTree(ctx, parts, state, update);
  return { node: parts.node, head: parts.head, meta: () => state.meta, update };
}

function treeParts(ctx) {
  const search = { type: "search", placeholder: "Find text", "aria-label": "Find text in the tree" };
  const find = el("input", { class: "y-input y-tree-find", ...search });
  const axis = el("span", { class: "y-tree-axis", "aria-hidden": "true" });
  const columns = ["Tokens", "Blocks", "Refs", "Last used"].map((words) => el("span", { class: "y-tree-num" }, words));
  const caption = el("span", {}, "Text of the node");
  const head = el("div", { class: "y-tree-head", "aria-hidden": "true" }, caption, axis, ...columns);
  const body = el("div", { class: "y-tree-body", role: "tree", "aria-label": "Radix tree" });
  const note = el("div", { class: "y-tree-note", role: "status" });
  const legend = el("div", { class: "y-tree-legend" }, ...LEGEND.map(treeLegendEntry));
  const room = el("div", { class: "y-tree-room" }, el("div", { class: "y-tree-scroll" }, head, body), note);
  const node = el("div", { class: "y-tree" }, room, legend);
  const pick = requestPick(ctx, "Path of request");
  const tools = el("span", { class: "y-tree-tools" }, find, pick.node);
  return { node, head: tools, find, axis, body, note, pick };
}

function treeLegendEntry([mark, words]) {
  return el("span", { class: "y-tree-entry" }, el("i", { class: "y-tree-mark " + mark, "aria-hidden": "true" }), words);
}

function updateTree(ctx, parts, state) {
  const { run, cursor, selection } = ctx;
  const model = modelAt(ctx, state);
  state.model = model;
  const path = selection.request === null ? [] : requestPath(run, model, selection.request, cursor);
  state.choice.path = new Set(path.map((node) => node.id));
  const found = state.query ? findNodes(run, model, state.texts, state.query) : { hits: null, more: 0 };
  state.choice.hits = found.hits;
  state.rows = treeRows(model, state.choice);
  state.axis = axisLength(run, model, state.axis);
  paintTreeAxis(parts.axis, state.axis);
  paintTreeRows(ctx, parts, state);
  parts.pick.update();
  setText(parts.note, treeNote(state, found, selection.request, path));
  parts.note.hidden = !parts.note.textContent;
  parts.note.classList.toggle("empty", parts.note.textContent === EMPTY);
  state.meta = treeMeta(model);
}

// Orders and open levels hold while steps follow one another and requests run; a jump or a rest sorts anew.
function modelAt(ctx, state) {
  const { run, cursor, live } = ctx;
  const frame = run.frameAt(cursor);
  const step = run.step(cursor) ?? {};
  const before = run.frameAt(cursor - 1);
  if (state.run !== run) for (const kept of [state.choice.closed, state.choice.opened, state.choice.limits]) kept.clear();
  const follows = state.run === run && (live || Math.abs(cursor - state.step) <= 1) && frame.tables.size > 0;
  const model = treeModel(frame, before, step, follows && state.model ? state.model.below : null);
  if (!follows || state.rows.length > MOST_ROWS_KEPT) state.choice.levels = state.depth ?? openLevels(model);
  Object.assign(state, { run, step: cursor });
  return model;
}

function treeMeta(model) {
  const words = [counted(model.totals.nodes, "node"), counted(model.totals.tokens, "token")];
  if (model.namespaces > 1) words.push(counted(model.namespaces, "namespace"));
  return words.join(" · ");
}

function treeNote(state, found, request, path) {
  if (!state.model.totals.nodes && !state.rows.length) return EMPTY;
  if (found.hits && !found.hits.size) return "No node contains this text.";
  const all = found.more ? found.hits.size + found.more : 0;
  if (all) return counted(all, "hit") + ", the first " + count(found.hits.size) + " shown";
  if (request !== null && !path.length) return request + " has no prefix in the tree at this step.";
  return "";
}

// Rows are kept by key, so that focus, hover and scroll position stay where they are.
function paintTreeRows(ctx, parts, state) {
  const { body } = parts;
  const focused = body.contains(document.activeElement);
  const place = state.rows.findIndex((row) => row.key === state.at);
  const wanted = new Set(state.rows.map((row) => row.key));
  for (const [key, made] of state.made) {
    if (wanted.has(key)) continue;
    made.node.remove();
    state.made.delete(key);
  }
  let next = body.firstElementChild;
  for (const row of state.rows) {
    if (!state.made.has(row.key)) state.made.set(row.key, treeRow());
    const made = state.made.get(row.key);
    made.node.dataset.key = row.key;
    if (made.node === next) next = next.nextElementSibling;
    else body.insertBefore(made.node, next);
    paintTreeRow(made, row, lookOf(ctx, state, row));
  }
  if (place < 0) state.at = state.rows.length ? state.rows[0].key : null;
  for (const [key, made] of state.made) made.node.tabIndex = key === state.at ? 0 : -1;
  if (focused && place < 0 && state.at) state.made.get(state.at).node.focus();
}

function lookOf(ctx, state, row) {
  const id = row.kind === "node" ? row.node.id : null;
  const block = ctx.selection.block;
  const picked = id !== null && (id === ctx.selection.node || (block !== null && row.node.blocks.includes(block)));
  const { texts, axis, query, choice } = state;
  return { run: ctx.run, step: ctx.cursor, texts, axis, query, onPath: choice.path.has(id), picked };
}

function wireTree(ctx, parts, state, update) {
  const rowOf = (event) => {
    const node = event.target.closest(".y-tree-row");
    return node && state.rows.find((row) => row.key === node.dataset.key);
  };
  const focusRow = (row) => {
    state.at = row.key;
    for (const [key, made] of state.made) made.node.tabIndex = key === row.key ? 0 : -1;
    state.made.get(row.key).node.focus();
  };
  const toggle = (row, open) => {
    const [to, from] = open ? [state.choice.opened, state.choice.closed] : [state.choice.closed, state.choice.opened];
    to.add(row.key);
    from.delete(row.key);
    update();
  };
  const press = (row) => {
    if (row.kind === "more") {
      state.choice.limits.set(row.key, row.limit);
      return update();
    }
    if (row.kind === "space") return toggle(row, !row.open);
    ctx.select("node", row.node.id);
  };
  parts.body.addEventListener("click", (event) => {
    const row = rowOf(event);
    if (!row) return;
    focusRow(row);
    if (event.target.closest(".y-tree-toggle") && row.open !== null) toggle(row, !row.open);
    else press(row);
  });
  parts.body.addEventListener("focusin", (event) => {
    const row = rowOf(event);
    if (row) state.at = row.key;
  });
  parts.body.addEventListener("pointerover", (event) => {
    const row = rowOf(event);
    if (row && row.kind === "node") state.made.get(row.key).node.title = nodeTitle(ctx.run, state, row.node);
  });
  parts.find.addEventListener("input", () => {
    state.query = parts.find.value.trim();
    update();
  });
  const keys = (event) => treeKeys(event, { ctx, parts, state, update, focusRow, toggle, press });
  for (const part of [parts.node, parts.head]) part.addEventListener("keydown", keys);
}

const TITLE_TEXT = 2000;

function nodeTitle(run, state, node) {
  const text = markEdges(state.texts.whole(run, node));
  const shown = text.length > TITLE_TEXT ? text.slice(0, TITLE_TEXT) + "…" : text;
  return "node " + node.id + ", " + (node.gone || nodeState(node)) + "\n" + shown;
}
