// The scheduler's steps for each request: who waited, computed, wrote or lost its place; and one step in figures.
import { columnWidth, stepAt, xOf } from "./core_axis.js";
import { clear, el, setAttr, setText, svg } from "./core_dom.js";
import { count, counted } from "./core_format.js";
import { LOST } from "./lives.js";
import { storyOf, tokensOf } from "./story.js";
import { HIGH, LOW, timelinePaths, timelineScale } from "./timeline_bars.js";
import { timelineTools } from "./timeline_tools.js";
import { markChip } from "./timeline_marks.js";
import { timelineView } from "./timeline_model.js";
import { stepPanel } from "./timeline_panel.js";
import { wirePointer } from "./timeline_pointer.js";
import { timelineRows } from "./timeline_rows.js";
import { USUAL_STEPS, panned, stepsInSight, zoomed } from "./timeline_window.js";
import { EMPTY_TIMELINE, barWords, moreWords, moveWords, timelineSentence, windowWords } from "./timeline_words.js";

const AXIS = 24;
const TICKS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000];
const TICK_ROOM = 52;
// Paths of the bars and the look of each, from back to front.
const LOST_LOOK = { preempted: "gone", swapped: "host" };
const BARS = [
  ...["waiting", "cached", "prefill", "decode"].map(name => [name, name]),
  ...LOST.flatMap(name => [["outline-" + name, "outline y-tl-" + LOST_LOOK[name]], [name, name]]),
  ["paused", "paused"],
  ["stop", "end"], ["length", "end"], ["broken", "broken"], ["unknown", "unknown"],
];
const LEGEND = [
  ["waiting", "waiting"], ["cached", "from cache"], ["prefill", "prefill chunk"], ["decode", "decode"],
  ...LOST.map(name => [name, name]), ["paused", "paused"], ["stop", "stop"], ["length", "length"],
  ["broken", "cancelled or failed"],
];

export function createTimeline(ctx) {
  const usual = { span: USUAL_STEPS, to: null };
  const state = { window: usual, height: LOW, hover: null, said: "", view: null, sight: null, shown: null };
  const rows = timelineRows(ctx);
  const panel = stepPanel();
  const parts = timelineParts(rows, panel);
  const tools = timelineTools(ctx, state, zoom);
  const resized = new ResizeObserver(() => ctx.changed());
  resized.observe(parts.node);
  const hover = place => {
    state.hover = place;
    state.said = "";
    paintReadout(ctx, parts, state);
  };
  wirePointer(parts.area, {
    width: () => parts.area.clientWidth,
    step: x => stepAt(x, state.sight, parts.area.clientWidth),
    go: step => ctx.setCursor(step),
    hover: (step, y) => hover(step === null ? null : { step, y: y - AXIS + parts.scroll.scrollTop }),
    zoom,
  });
  parts.axis.addEventListener("keydown", event => axisKey(ctx, event));
  parts.node.addEventListener("keydown", event => {
    const factor = { "+": 2, "=": 2, "-": 0.5, 0: 0 }[event.key];
    if (factor === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    zoom(factor, ctx.cursor);
    event.preventDefault();
  });

  // The bar moves the window by its bracket. A cursor that would be left behind comes along.
  ctx.pan = to => {
    state.window = panned(state.sight, ctx.run, to);
    const last = state.window.to ?? ctx.run.last;
    const first = last - state.window.span + 1;
    if (ctx.cursor < first || ctx.cursor > last) ctx.setCursor(ctx.cursor < first ? first : last);
    ctx.changed();
  };

  // Factor 0 shows all steps. A window without the cursor takes it along.
  function zoom(factor, step) {
    if (!state.sight) return;
    state.window = factor ? zoomed(state.sight, ctx.run, step, factor) : { span: null, to: null };
    const { span, to } = state.window;
    const last = to ?? ctx.run.last;
    if (span !== null && (ctx.cursor > last || ctx.cursor <= last - span)) ctx.setCursor(step);
    ctx.changed();
  }

  function update() {
    const { run, cursor } = ctx;
    const width = parts.area.clientWidth;
    setAttr(parts.node, "data-empty", run.size ? null : "");
    tools.update(run.size ? state.sight ?? stepsInSight(state.window, run, cursor) : null);
    if (!run.size || !width) return;
    const story = storyOf(run);
    if (ctx.live && state.window.to !== null) state.window = { ...state.window, to: null };
    state.sight = stepsInSight(state.window, run, cursor);
    tellSight(ctx, state.sight);
    // New steps do not push away what is looked at.
    if (!ctx.live) state.window = { ...state.window, to: state.sight.to };
    state.view = timelineView(run, story, state.sight.from, state.sight.to);
    tools.update(state.sight);
    const one = story.figures[story.upTo(cursor) - 1];
    paintPlot(ctx, parts, state, width);
    rows.update(state.view, state.scale, one.at, ctx.selection.request);
    showSelected(parts, rows, state, ctx.selection.request);
    paintReadout(ctx, parts, state);
    panel.update(run, run.step(one.step), one, ctx.selection.request);
    const words = "step " + count(one.step) + ", " + counted(tokensOf(one), "token");
    setAttr(parts.axis, "aria-valuemin", run.first);
    setAttr(parts.axis, "aria-valuemax", run.last);
    setAttr(parts.axis, "aria-valuenow", one.step);
    setAttr(parts.axis, "aria-valuetext", words);
  }

  return {
    node: parts.node,
    head: tools.node,
    meta: () => (state.view && ctx.run.size ? windowWords(state.view) : ""),
    update,
    destroy: () => resized.disconnect(),
  };
}

// The replay bar, which is drawn before, marks what is in sight.
function tellSight(ctx, sight) {
  if (ctx.sight?.from === sight.from && ctx.sight.to === sight.to) return;
  ctx.sight = sight;
  ctx.changed();
}

function timelineParts(rows, panel) {
  const ticks = svg("svg", { class: "y-tl-ticks", height: AXIS, "aria-hidden": "true" });
  const axis = el("div", { class: "y-tl-axis", role: "slider", tabindex: 0, "aria-label": "Step" }, ticks);
  const grid = svg("g");
  const picked = svg("g", { class: "y-tl-picked" }, svg("rect", { width: "100%" }), svg("rect", { width: 3 }));
  const band = svg("rect", { class: "y-tl-band", y: 0 });
  const line = svg("line", { class: "y-tl-cursor", y1: 0 });
  const hatches = LOST.map(hatchOf);
  const bars = {};
  for (const [name, look] of BARS) bars[name] = svg("path", { class: "y-tl-" + look });
  LOST.forEach((name, at) => (bars[name].style.fill = `url(#${hatches[at].id})`));
  const layers = [svg("defs", {}, hatches), picked, grid, band, line, Object.values(bars)];
  const plot = svg("svg", { class: "y-tl-plot", role: "img" }, layers);
  const note = el("div", { class: "y-tl-note" }, el("div"), el("div", {}, "in order of arrival"));
  const scroll = el("div", { class: "y-tl-scroll" }, plot, rows.names, rows.outputs, note);
  const area = el("div", { class: "y-tl-area" }, axis, scroll);
  const more = el("span", { class: "y-tl-more" });
  const said = el("span", { class: "y-one" });
  const read = el("div", { class: "y-tl-read" }, more, said);
  const chips = new Map(LEGEND.map(([mark, words]) => [mark, markChip(mark, words)]));
  const legend = el("div", { class: "y-legend y-tl-legend" }, [...chips.values()]);
  const swaps = chips.get("swapped");
  swaps.hidden = true; // until something was swapped
  const empty = el("p", { class: "y-empty", role: "status" }, EMPTY_TIMELINE);
  const node = el("div", { class: "y-tl" }, empty, area, read, legend, panel.node);
  return { node, area, axis, ticks, scroll, plot, grid, picked, band, line, bars, note, more, said, swaps };
}

// Strokes that rise where a place was lost, and fall where it went to the host.
function hatchOf(name) {
  const id = "y-tl-" + Math.random().toString(36).slice(2);
  const turn = name === "swapped" ? -45 : 45;
  const slanted = { width: 4, height: 4, patternUnits: "userSpaceOnUse", patternTransform: `rotate(${turn})` };
  const stroke = svg("rect", { class: "y-tl-hatch y-tl-" + LOST_LOOK[name], width: 1.6, height: 4 });
  return svg("pattern", { id, ...slanted }, stroke);
}

function paintPlot(ctx, parts, state, width) {
  const { view, sight } = state;
  const scale = (state.scale = timelineScale(view.rows.length));
  const tall = view.rows.length * scale.row;
  // The height follows the rows by one leap, and never back.
  if (tall > LOW) state.height = HIGH;
  const height = Math.max(Math.round(tall), state.height);
  parts.scroll.style.height = state.height + "px";
  for (const [name, value] of [["width", width], ["height", height]]) setAttr(parts.plot, name, value);
  setAttr(parts.ticks, "width", width);
  setAttr(parts.plot, "aria-label", timelineSentence(view));
  const each = columnWidth(sight, width);
  const x = xOf(ctx.cursor, sight, width);
  const middle = Math.round(x + each / 2) + 0.5;
  for (const [name, value] of [["x", x], ["width", each], ["height", height]]) setAttr(parts.band, name, value);
  for (const [name, value] of [["x1", middle], ["x2", middle], ["y2", height]]) setAttr(parts.line, name, value);
  paintTicks(parts, view, sight, width, height, middle);
  const paths = timelinePaths(view, sight, width, scale);
  for (const name of LOST) paths["outline-" + name] = scale.mark ? paths[name] : "";
  parts.swaps.hidden &&= !paths.swapped;
  for (const [name, path] of Object.entries(paths)) setAttr(parts.bars[name], "d", path || null);
  setAttr(parts.plot, "data-flat", scale.mark ? null : "");
  parts.note.hidden = scale.mark > 0;
  setText(parts.note.firstChild, counted(view.rows.length, "row"));
  const place = view.rows.findIndex(row => row.label === ctx.selection.request);
  setAttr(parts.picked, "transform", `translate(0 ${place * scale.row})`);
  parts.picked.style.display = place < 0 ? "none" : "";
  for (const rect of parts.picked.children) setAttr(rect, "height", scale.row);
}

function paintTicks(parts, view, sight, width, height, middle) {
  const each = columnWidth(sight, width);
  const every = TICKS.find(tick => tick * each >= TICK_ROOM) ?? 5000;
  clear(parts.grid);
  clear(parts.ticks).append(
    svg("text", { x: 12, y: 16 }, "Request"),
    svg("text", { x: width - 12, y: 16, "text-anchor": "end" }, "Output"));
  for (const { step } of view.columns) {
    if (step % every && view.columns.length > 1) continue;
    const x = Math.round(xOf(step, sight, width) + each / 2) + 0.5;
    parts.grid.append(svg("line", { x1: x, x2: x, y1: 0, y2: height }));
    parts.ticks.append(svg("text", { x, y: 16, "text-anchor": "middle" }, count(step)));
  }
  parts.ticks.append(svg("path", { class: "y-tl-pointer", d: `M${middle - 4} 18h8l-4 5z` }));
}

// A request that was chosen elsewhere comes into sight, once.
function showSelected(parts, rows, state, label) {
  if (label === state.shown) return;
  state.shown = label;
  const place = state.view.rows.findIndex(row => row.label === label);
  if (place < 0) return;
  const { row } = state.scale;
  const { scrollTop, clientHeight } = parts.scroll;
  const seen = place * row >= scrollTop && (place + 1) * row <= scrollTop + clientHeight;
  if (!seen) parts.scroll.scrollTop = place * row - clientHeight / 2;
}

// What lies under the pointer; without one, what the chosen request did in the step at the cursor.
function paintReadout(ctx, parts, state) {
  const { view, scale, hover } = state;
  if (!view) return;
  const chosen = view.rows.find(one => one.label === ctx.selection.request);
  const row = hover ? view.rows[Math.floor(hover.y / scale.row)] : chosen;
  const step = hover ? hover.step : ctx.cursor;
  const column = view.columns.findIndex(one => one.step === step);
  const span = row?.spans.find(one => one.first <= column && column <= one.last);
  setText(parts.more, moreWords(view));
  setText(parts.said, state.said || (row ? barWords(view, row, span) : moveWords(state.sight, ctx.run)));
}

function axisKey(ctx, event) {
  const by = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -10, PageUp: 10 }[event.key];
  if (event.ctrlKey || event.metaKey || event.altKey || !ctx.run.size) return;
  if (by) ctx.setCursor(ctx.run.beside(ctx.cursor, event.shiftKey && Math.abs(by) === 1 ? by * 10 : by));
  else if (event.key === "Home") ctx.setCursor(ctx.run.first);
  else if (event.key === "End") ctx.setCursor(ctx.run.last);
  else if (event.key === " ") ctx.play();
  else return;
  event.preventDefault();
}
