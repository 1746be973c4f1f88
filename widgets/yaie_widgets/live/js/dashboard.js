// The engine at a glance: totals, and every recorded step on one axis.
import { el, setAttr, setText, svg } from "./core_dom.js";
import { count, visibleLine } from "./core_format.js";
import { stateLine } from "./core_solo.js";
import { dashboardPlot, lostMark } from "./dashboard_plot.js";
import { engineWords, totalWords } from "./dashboard_strips.js";
import { LOST } from "./lives.js";
import { storyOf, totalsOf } from "./story.js";

const EMPTY = "No step recorded yet. Run a %%generate cell.";

export function createDashboard(ctx) {
  // `paused`: the last step that is shown; `at`: the place under the pointer; null: the newest.
  const state = { paused: null, at: null, scene: null, drawn: "" };
  const totals = el("div", { class: "y-dash-totals", role: "list", "aria-label": "Totals" });
  const plot = dashboardPlot();
  const empty = el("p", { class: "y-empty", role: "status" }, EMPTY);
  const legend = dashboardLegend();
  const node = el("div", { class: "y-dash" }, totals, empty, plot.node, legend);
  const status = el("span", { class: "y-meta y-dash-status" });
  const pause = el("button", { type: "button", class: "y-button y-dash-pause", on: { click: togglePause } }, "Pause");
  const head = el("span", { class: "y-tools" }, status, pause);
  const resized = new ResizeObserver(() => ctx.changed());
  resized.observe(node);
  for (const kind of ["pointerdown", "pointermove"]) plot.node.addEventListener(kind, pointAt);
  // A finger that is lifted leaves what it has found; a mouse that goes away does not.
  plot.node.addEventListener("pointerleave", event => event.pointerType === "touch" || show(null));
  plot.node.addEventListener("keydown", event => moveCursor(event));

  function pointAt(event) {
    if (!state.scene) return;
    const place = plot.axis(state.scene).placeAt(event.clientX - plot.node.getBoundingClientRect().left);
    show(place < state.scene.shown.length - 1 ? place : null);
  }

  function togglePause() {
    state.paused = state.paused === null ? ctx.run.last : null;
    ctx.changed();
  }

  function show(place) {
    state.at = place;
    if (state.scene) plot.point(state.scene, place ?? state.scene.shown.length - 1);
  }

  function moveCursor(event) {
    if (!state.scene || event.ctrlKey || event.metaKey || event.altKey) return;
    const last = state.scene.shown.length - 1;
    const arrow = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1 }[event.key] ?? 0;
    const by = arrow * (event.shiftKey ? 10 : 1);
    if (by) show(Math.max(0, Math.min(last, (state.at ?? last) + by)));
    else if (event.key === "Home") show(0);
    else if (event.key === "End" || event.key === "Escape") show(null);
    else return;
    event.preventDefault();
  }

  function update() {
    const { run } = ctx;
    if (state.run !== run) Object.assign(state, { run, paused: null, at: null });
    // Nothing comes any more: there is nothing to hold back.
    const gone = stateLine(run, ctx.lost) !== "";
    if (gone) state.paused = null;
    const story = storyOf(run);
    const last = state.paused ?? run.last;
    const shown = story.figures.slice(0, story.upTo(last));
    setAttr(node, "data-empty", shown.length ? null : "");
    paintStatus(run, shown, gone);
    paintTotals(totals, totalWords(totalsOf(story, shown), run.engine));
    if (shown.some(one => one.swapped.length)) node.dataset.swaps = "";
    state.scene = shown.length ? { engine: run.engine, story, shown } : null;
    if (!state.scene || !plot.node.clientWidth) return;
    const drawn = [run.id, run.first, last, run.engine.num_blocks, plot.node.clientWidth].join();
    if (drawn !== state.drawn) legend.lastChild.style.visibility = plot.draw(state.scene) ? "" : "hidden";
    state.drawn = drawn;
    show(state.at);
  }

  function paintStatus(run, shown, gone) {
    const where = shown.length ? " · step " + count(shown.at(-1).step) : "";
    const live = run.engine.state + where + " · live";
    setText(status, state.paused === null ? live : "Paused at step " + count(state.paused));
    status.hidden = pause.hidden = gone;
    setText(pause, state.paused === null ? "Pause" : "Go on");
    setAttr(pause, "aria-pressed", state.paused === null ? "false" : "true");
  }

  const meta = () => visibleLine(engineWords(ctx.run.engine));
  return { node, head, meta, update, destroy: () => resized.disconnect() };
}

function paintTotals(list, words) {
  while (list.children.length > words.length) list.lastChild.remove();
  while (list.children.length < words.length) {
    list.append(el("div", { role: "listitem" }, el("div", { class: "y-note" }), el("div", { class: "y-dash-total" })));
  }
  words.forEach((pair, at) => pair.forEach((text, k) => setText(list.children[at].children[k], text)));
}

function dashboardLegend() {
  const icon = (...shape) => svg("svg", { width: 12, height: 12, viewBox: "0 0 12 12", "aria-hidden": "true" }, shape);
  const chip = (mark, words) => el("span", { class: "y-chip" }, mark, words);
  return el("div", { class: "y-legend y-dash-legend" },
    chip(icon(svg("path", { class: "y-dash-evicted", d: "M3 3l6 6m-6 0l6-6" })), "blocks evicted"),
    ...LOST.map(way => el("span", { class: "y-chip " + way }, icon(lostMark(1, 2, way)), "request " + way)),
    chip(icon(svg("path", { class: "y-dash-limit", d: "M0 6.5h12" })), "limit"),
    el("span", { class: "y-meta" }, "gap in a bar: least of its steps, or cut off"));
}
