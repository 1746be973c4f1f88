// The bracket of the bar: which of all steps another view with a step axis shows. It is moved by pointer and keys.

import { columnWidth, xOf } from "./core_axis.js";
import { el, setAttr } from "./core_dom.js";
import { count } from "./core_format.js";

// Where it begins and ends; null where all steps are in sight.
export function sightEnds(sight, view, width) {
  if (!sight || (sight.from <= view.from && sight.to >= view.to)) return null;
  const ends = [Math.max(sight.from, view.from), Math.min(sight.to, view.to) + 1];
  return ends.map(step => Math.round(xOf(step, view, width)) + 0.5);
}

// The handle below the bracket. axis() gives {from, to, width}.
export function sightThumb(ctx, axis) {
  const node = el("div", { class: "y-thumb", role: "slider", tabindex: 0, "aria-label": "Steps in sight", title: "Drag to move the steps in sight" });
  let held = null;
  const release = () => (held = null);
  node.addEventListener("pointerdown", event => {
    if (event.button) return;
    node.setPointerCapture(event.pointerId);
    held = { x: event.clientX, to: ctx.sight.to };
  });
  node.addEventListener("pointermove", event => {
    const { width, ...view } = axis();
    if (held) ctx.pan(held.to + Math.round((event.clientX - held.x) / columnWidth(view, width)));
  });
  for (const end of ["pointerup", "pointercancel"]) node.addEventListener(end, release);
  node.addEventListener("keydown", event => {
    const { from, to } = ctx.sight;
    const span = to - from + 1;
    const by = { ArrowLeft: -10, ArrowDown: -10, ArrowRight: 10, ArrowUp: 10, PageDown: -span, PageUp: span }[event.key];
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (by) ctx.pan(to + by);
    else if (event.key === "Home") ctx.pan(0);
    else if (event.key === "End") ctx.pan(ctx.run.last);
    else return;
    event.preventDefault();
  });

  function update(ends) {
    node.hidden = ends === null;
    if (!ends) return;
    const { from, to } = ctx.sight;
    Object.assign(node.style, { left: ends[0] + "px", width: ends[1] - ends[0] + "px" });
    setAttr(node, "aria-valuemin", ctx.run.first);
    setAttr(node, "aria-valuemax", ctx.run.last);
    setAttr(node, "aria-valuenow", to);
    setAttr(node, "aria-valuetext", "steps " + count(from) + " to " + count(to) + " of " + count(ctx.run.last));
  }

  return { node, update };
}
