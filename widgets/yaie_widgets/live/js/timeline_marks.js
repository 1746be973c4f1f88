// One drawing of every mark, used by the bars' legend and the step panel alike.
import { el, svg } from "./core_dom.js";

const SHAPES = {
  waiting: () => svg("rect", { class: "y-tl-waiting", x: 0.5, y: 4.5, width: 11, height: 3 }),
  cached: () => svg("rect", { class: "y-tl-cached", y: 2, width: 12, height: 8 }),
  prefill: () => svg("rect", { class: "y-tl-prefill", y: 2, width: 12, height: 8 }),
  decode: () => svg("rect", { class: "y-tl-decode", y: 4, width: 12, height: 4 }),
  paused: () => svg("rect", { class: "y-tl-paused", y: 5.5, width: 12, height: 1 }),
  preempted: () => [
    svg("rect", { class: "y-tl-outline", x: 0.5, y: 2.5, width: 11, height: 7 }),
    svg("path", { class: "y-tl-strokes", d: "M1 6l3.5-3.5M2 9.5l7-7M7 9.5l4.5-4.5" }),
  ],
  swapped: () => [
    svg("rect", { class: "y-tl-outline y-tl-host", x: 0.5, y: 2.5, width: 11, height: 7 }),
    svg("path", { class: "y-tl-strokes y-tl-host", d: "M11 6L7.5 2.5M10 9.5l-7-7M5 9.5L.5 5" }),
  ],
  stop: () => svg("circle", { class: "y-tl-end", cx: 6, cy: 6, r: 3.5 }),
  length: () => svg("rect", { class: "y-tl-end", x: 2.5, y: 2.5, width: 7, height: 7 }),
  broken: () => svg("path", { class: "y-tl-broken", d: "M3 3l6 6m-6 0l6-6" }),
  evicted: () => svg("path", { class: "y-tl-evicted", d: "M2.5 2.5l7 7m-7 0l7-7" }),
  copied: () => svg("path", { class: "y-tl-copied", d: "M1 1h6.5v6.5H1zM4.5 4.5H11V11H4.5z" }),
  free: () => svg("rect", { class: "y-tl-waiting", x: 0.5, y: 0.5, width: 11, height: 11 }),
  held: () => svg("rect", { class: "y-tl-held", width: 12, height: 12 }),
  cache: () => svg("rect", { class: "y-tl-cached", width: 12, height: 12 }),
  none: () => [],
};

export function timelineMark(kind) {
  const shape = [SHAPES[kind]()].flat();
  return svg("svg", { class: "y-tl-mark", width: 12, height: 12, viewBox: "0 0 12 12", "aria-hidden": "true" }, shape);
}

export function markChip(kind, words) {
  return el("span", { class: "y-chip" }, timelineMark(kind), words);
}
