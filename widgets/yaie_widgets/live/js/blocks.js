// The block map: every physical block as a square, what it holds, and what the step did to it.

import { el } from "./core_dom.js";
import { count, counted } from "./core_format.js";
import { isChoiceOf, requestPick } from "./request_pick.js";
import { blockCanvas } from "./blocks_canvas.js";
import { blockCard, blockFacts, cardPlace } from "./blocks_card.js";
import { blockGrid } from "./blocks_grid.js";
import { blockLegend } from "./blocks_legend.js";
import { blocksModel, gridTarget, STATES } from "./blocks_model.js";

const MOST_CELLS = 1024;

export function createBlocks(ctx, options = {}) {
  if (options.request) ctx.selection = { ...ctx.selection, request: options.request };
  const state = { model: null, frame: null, step: {}, filter: null, hover: null, swaps: false, surface: null, touch: false };
  const parts = mapParts(ctx, state);
  const update = () => updateMap(ctx, parts, state);
  const changed = () => ctx.changed();
  const resized = new ResizeObserver(changed);
  resized.observe(parts.area);
  // The picture of a large pool is painted in the colours of the theme.
  const themed = new MutationObserver(changed);
  themed.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light", "class"] });
  wireMap(ctx, parts, state);
  const destroy = () => [resized, themed].forEach((observer) => observer.disconnect());
  return { node: parts.node, head: parts.pick.node, meta: () => mapMeta(ctx, state), update, destroy };
}

function mapParts(ctx, state) {
  const card = blockCard();
  const area = el("div", { class: "y-map-area" }, card.node);
  const legend = blockLegend((key) => {
    state.filter = key;
    ctx.changed();
  });
  const body = el("div", { class: "y-map-body" }, area, legend.node);
  return { node: el("div", { class: "y-map" }, body), body, area, card, legend, pick: requestPick(ctx, "Blocks of request") };
}

function updateMap(ctx, parts, state) {
  const { run, cursor } = ctx;
  state.frame = run.frameAt(cursor);
  state.step = run.step(cursor) ?? {};
  state.model = blocksModel(run, state.frame, state.step);
  state.swaps ||= state.model.counts.swapped > 0 || state.model.hostHeld > 0;
  const total = state.model.cells.length;
  chooseSurface(parts, state, total > MOST_CELLS);
  const width = parts.area.clientWidth;
  if (width) state.surface.paint(state.model, mapLook(ctx, state), width);
  parts.legend.update(state.model, state.filter, state.swaps);
  parts.pick.update();
  showCard(ctx, parts, state);
}

function chooseSurface(parts, state, large) {
  if (state.surface && state.large === large) return;
  state.surface?.node.remove();
  state.large = large;
  state.surface = large ? blockCanvas() : blockGrid();
  parts.area.prepend(state.surface.node);
  parts.body.classList.toggle("large", large);
}

// Which blocks are drawn in full: those of the chosen request or node, and of the pressed legend entry.
function mapLook(ctx, state) {
  const { run, selection } = ctx;
  const { filter, model } = state;
  const ofEntry = {
    written: (cell) => cell.written,
    copied: (cell) => model.copiedFrom.has(cell.id),
    evicted: (cell) => model.evicted.has(cell.id),
    swapped: (cell) => model.swapped.has(cell.id)
  };
  const passes = filter === null ? null : STATES.includes(filter) ? (cell) => cell.state === filter : ofEntry[filter];
  const { request, node } = selection;
  return {
    run,
    labels: true,
    stands: (cell) =>
      (passes === null || passes(cell)) &&
      (request === null || cell.holders.some((label) => isChoiceOf(label, request))) &&
      (node === null || request !== null || cell.node === node)
  };
}

function mapMeta(ctx, state) {
  const total = state.model ? state.model.cells.length : 0;
  const words = counted(total, "block") + " of " + counted(ctx.run.engine.block_size, "token");
  const { request } = ctx.selection;
  if (request === null || !state.frame) return words;
  const held = state.model.cells.filter((cell) => cell.holders.some((label) => isChoiceOf(label, request)));
  return words + " · " + request + " holds " + count(held.length);
}

function showCard(ctx, parts, state) {
  const { surface, model, frame } = state;
  const id = state.hover ?? ctx.selection.block;
  const there = id !== null && id < model.cells.length;
  surface.point(there ? id : null, mapLook(ctx, state));
  if (!there) return parts.card.hide();
  parts.card.show(blockFacts(ctx.run, frame, model, state.step, id), surface.lens?.node);
  const card = parts.card.node;
  const { x, y } = cardPlace(surface.rectOf(id), parts.area.getBoundingClientRect(), card.getBoundingClientRect());
  card.style.left = x + "px";
  card.style.top = y + "px";
}

function wireMap(ctx, parts, state) {
  const hover = (id) => {
    if (state.hover === id) return;
    state.hover = id;
    if (state.model) showCard(ctx, parts, state);
  };
  parts.area.addEventListener("pointerdown", (event) => (state.touch = event.pointerType === "touch"));
  parts.area.addEventListener("pointermove", (event) => {
    if (event.pointerType !== "touch" && state.surface) hover(state.surface.idAt(event));
  });
  parts.area.addEventListener("pointerleave", (event) => {
    if (event.pointerType !== "touch") hover(null);
  });
  parts.area.addEventListener("click", (event) => {
    const id = state.surface.idAt(event);
    if (id === null) return;
    // The first tap shows, the second one pins.
    if (state.touch && state.hover !== id) return hover(id);
    state.surface.focus(id);
    ctx.select("block", id);
  });
  parts.area.addEventListener("focusin", (event) => {
    if (event.target.matches(":focus-visible")) hover(state.surface.at);
  });
  parts.area.addEventListener("focusout", () => hover(null));
  const keys = (event) => mapKeys(event, ctx, parts, state, hover);
  for (const part of [parts.node, parts.pick.node]) part.addEventListener("keydown", keys);
}

function mapKeys(event, ctx, parts, state, hover) {
  if (event.altKey || event.ctrlKey || event.metaKey) return;
  const { surface, model } = state;
  if (event.key === "Escape") {
    state.filter = null;
    hover(null);
    for (const kind of ["block", "node", "request"]) if (ctx.selection[kind] !== null) ctx.select(kind, null);
    ctx.changed();
  } else if (!parts.area.contains(event.target)) {
    return;
  } else if (event.key === "Enter" || event.key === " ") {
    ctx.select("block", surface.at);
  } else {
    const id = gridTarget(event.key, surface.at, surface.columns, model.cells.length);
    if (id === null) return;
    surface.focus(id);
    hover(id);
  }
  event.preventDefault();
  event.stopPropagation();
}
