// The bar that moves through the recorded steps: transport, an overview of tokens per step, the cursor.

import { clear, el, setAttr, setText, svg } from "./core_dom.js";
import { count, ms } from "./core_format.js";
import { sightEnds, sightThumb } from "./core_sight.js";
import { lostIn } from "./lives.js";
import { LEFT, RIGHT, columnWidth, minmaxColumns, stepAt, xOf } from "./core_axis.js";

const HEIGHT = 44;
const RAIL = 9;
const LOW_EDGE = HEIGHT - 0.5;
const GLYPHS = {
  first: "M2 2h2v8H2zM11 2v8L5 6z",
  previous: "M9 2v8L3 6z",
  play: "M3 1.5v9L10.5 6z",
  pause: "M2.5 2h2.5v8H2.5zM7 2h2.5v8H7z",
  next: "M3 2v8l6-4z",
  last: "M8 2h2v8H8zM1 2v8l6-4z",
};

export function replayBar(ctx) {
  const glyph = name => svg("svg", { width: 12, height: 12, viewBox: "0 0 12 12", "aria-hidden": "true" }, svg("path", { d: GLYPHS[name] }));
  const button = (name, label, click) =>
    el("button", { type: "button", class: "y-button y-icon", "aria-label": label, title: label, on: { click } }, glyph(name));
  const go = step => ctx.setCursor(step);
  const play = button("play", "Play", () => ctx.play());
  const transport = el("div", { class: "y-transport", role: "group", "aria-label": "Steps" },
    button("first", "First step", () => go(ctx.run.first)),
    button("previous", "Previous step", () => go(ctx.run.beside(ctx.cursor, -1))),
    play,
    button("next", "Next step", () => go(ctx.run.beside(ctx.cursor, 1))),
    button("last", "Newest step", () => go(ctx.run.last)));
  const drawing = svg("svg", { class: "y-overview", height: HEIGHT, "aria-hidden": "true" });
  const marks = svg("g");
  const cursor = svg("rect", { class: "y-cursor", y: 0, height: HEIGHT, width: 2 });
  const sight = svg("path", { class: "y-sight" });
  const thumb = sightThumb(ctx, () => ({ ...axis(), width: node.clientWidth }));
  drawing.append(marks, sight, cursor);
  const slider = el("input", { type: "range", class: "y-slider", step: 1, "aria-label": "Step", on: { input: () => go(Number(slider.value)), keydown: keys } });
  const where = el("div", { class: "y-where" }, el("b", {}), el("span", {}), el("span", {}));
  const node = el("div", { class: "y-replaybar" }, transport, drawing, slider, thumb.node, where);
  drawing.addEventListener("pointerdown", scrub);
  drawing.addEventListener("pointermove", event => event.buttons && scrub(event));
  const resized = new ResizeObserver(() => ctx.changed());
  resized.observe(node);
  let drawn = "";

  function axis() {
    return { from: ctx.run.first, to: Math.max(ctx.run.last, ctx.run.first) };
  }

  function scrub(event) {
    if (event.type === "pointerdown") drawing.setPointerCapture(event.pointerId);
    const box = drawing.getBoundingClientRect();
    go(stepAt(event.clientX - box.left, axis(), box.width));
    slider.focus({ preventScroll: true });
  }

  function keys(event) {
    const by = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -10, PageUp: 10 }[event.key];
    if (by) go(ctx.run.beside(ctx.cursor, Math.abs(by) === 1 && event.shiftKey ? by * 10 : by));
    else if (event.key === "Home") go(ctx.run.first);
    else if (event.key === "End") go(ctx.run.last);
    else if (event.key === " ") ctx.play();
    else return;
    event.preventDefault();
  }

  function update() {
    const { run } = ctx;
    const width = node.clientWidth;
    if (!width) return;
    const view = axis();
    setAttr(slider, "min", view.from);
    setAttr(slider, "max", view.to);
    slider.value = ctx.cursor;
    slider.disabled = run.size < 2;
    const step = run.step(ctx.cursor);
    slider.setAttribute("aria-valuetext", step ? "step " + ctx.cursor + ", " + (step.prefill + step.decode) + " tokens" : "no step recorded");
    setText(where.firstChild, run.size ? "Step " + count(ctx.cursor) : "No step yet");
    setText(where.children[1], run.size ? " of " + count(run.last) : "");
    setText(where.lastChild, step ? since(run, step) + (ctx.live ? " · live" : "") : "");
    setAttr(play, "aria-label", ctx.playing ? "Pause" : "Play");
    setAttr(play, "title", ctx.playing ? "Pause" : "Play");
    setAttr(play.firstChild.firstChild, "d", GLYPHS[ctx.playing ? "pause" : "play"]);
    const key = [run.id, view.from, view.to, width].join();
    if (key !== drawn) draw(view, width);
    drawn = key;
    cursor.setAttribute("x", xOf(ctx.cursor, view, width) + columnWidth(view, width) / 2 - 1);
    cursor.style.display = run.size ? "" : "none";
    const ends = sightEnds(ctx.sight, view, width);
    setAttr(sight, "d", ends ? `M${ends[0]} ${RAIL + 4}V${LOW_EDGE}H${ends[1]}V${RAIL + 4}` : null);
    thumb.update(ends);
  }

  // Unsmoothed: with more steps than pixels a column shows its largest step, and its events as one mark.
  function draw(view, width) {
    clear(marks);
    drawing.setAttribute("width", width);
    const steps = ctx.run.steps();
    if (!steps.length) return;
    const room = Math.max(1, Math.floor((width - LEFT - RIGHT) / 2));
    const total = steps.map(one => one.prefill + one.decode);
    const most = Math.max(1, ...total);
    const columns = minmaxColumns(total, room);
    const unit = columns.length === steps.length ? columnWidth(view, width) : (width - LEFT - RIGHT) / columns.length;
    columns.forEach((column, i) => {
      const part = steps.slice(column.from, column.to + 1);
      const top = part.reduce((a, b) => (a.prefill + a.decode >= b.prefill + b.decode ? a : b));
      const x = columns.length === steps.length ? xOf(top.step, view, width) : LEFT + i * unit;
      bars(x, Math.max(1, unit > 3 ? unit - 0.8 : unit), top, most);
      if (part.some(one => [...lostIn(one).values()].includes("preempted"))) event(x + unit / 2, "y-preempted");
      else if (part.some(one => one.swapped)) event(x + unit / 2, "y-swapped");
      else if (part.some(one => one.evicted)) event(x + unit / 2, "y-evicted");
    });
  }

  function bars(x, width, step, most) {
    const scale = (HEIGHT - RAIL - 4) / most;
    const bottom = HEIGHT - 2;
    const low = step.decode * scale;
    const high = step.prefill * scale;
    if (step.decode) marks.append(svg("rect", { class: "y-decode", x, width, y: bottom - Math.max(1, low), height: Math.max(1, low) }));
    if (step.prefill) marks.append(svg("rect", { class: "y-prefill", x, width, y: bottom - low - Math.max(1, high), height: Math.max(1, high) }));
  }

  // Evicted: a cross. Preempted: a filled square. Swapped: a hollow square.
  function event(x, kind) {
    const box = { x: x - 2.5, y: 2, width: 5, height: 5 };
    if (kind === "y-evicted") marks.append(svg("path", { class: kind, d: "M" + (x - 2.5) + " 2l5 5m0 -5l-5 5" }));
    else marks.append(svg("rect", { class: kind, ...box }));
  }

  return { node, update, destroy: () => resized.disconnect() };
}

function since(run, step) {
  const first = run.steps()[0];
  return ms(Math.max(0, (step.at - first.at) * 1000));
}
