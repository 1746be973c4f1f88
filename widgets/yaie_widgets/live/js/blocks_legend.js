// The legend of the block map: how many blocks are in each state, and what the step did. It is the filter, too.

import { el, setAttr, setText } from "./core_dom.js";
import { count } from "./core_format.js";

const STATE_WORDS = [
  ["free", "Free"],
  ["cached", "Cached, evictable"],
  ["held", "Held by one request"],
  ["shared", "Shared, ×n requests"]
];
const EVENT_WORDS = [
  ["written", "Written"],
  ["copied", "Copied (copy on write)"],
  ["evicted", "Evicted"],
  ["swapped", "Swapped out or in"]
];

// choose(key) is called with the pressed entry, or null when it is pressed again.
export function blockLegend(choose) {
  const entries = new Map();
  const entry = ([key, words]) => {
    const figure = el("span", { class: "y-map-figure" });
    const mark = el("i", { class: "y-map-mark " + key, "aria-hidden": "true" });
    const press = () => choose(entries.get(key).button.getAttribute("aria-pressed") === "true" ? null : key);
    const attributes = { type: "button", class: "y-map-entry", "aria-pressed": "false", on: { click: press } };
    const button = el("button", attributes, mark, el("span", {}, words), figure);
    entries.set(key, { button, figure });
    return button;
  };
  const total = el("span", { class: "y-map-figure" });
  const captions = el("div", { class: "y-map-caption" }, el("span", {}, "State after the step"), el("span", {}, "Blocks"));
  const sum = el("div", { class: "y-map-entry sum" }, el("i", {}), el("span", {}, "Total"), total);
  const away = el("span", { class: "y-map-figure" });
  const host = el("div", { class: "y-map-entry sum host" }, el("i", {}), el("span", {}, "On the host, swapped"), away);
  const events = el("div", { class: "y-map-caption" }, el("span", {}, "In this step"));
  const [states, happened] = [STATE_WORDS.map(entry), EVENT_WORDS.map(entry)];
  const node = el("div", { class: "y-map-legend" }, captions, ...states, sum, host, events, ...happened);
  return {
    node,
    update(model, filter, swaps) {
      for (const [key, { button, figure }] of entries) {
        setText(figure, count(model.counts[key]));
        setAttr(button, "aria-pressed", String(key === filter));
      }
      entries.get("swapped").button.hidden = host.hidden = !swaps;
      setText(away, count(model.hostHeld));
      setText(total, count(model.cells.length));
    }
  };
}
