// One block as a square: colour by state, filled from below, with what the step did to it.

import { el, setText } from "./core_dom.js";
import { cellMark, eventsOf } from "./blocks_model.js";

export function mapCell(attributes = {}) {
  const words = el("span", { class: "y-map-label" });
  const node = el("span", { class: "y-map-cell", ...attributes }, words);
  return { node, words, seen: "" };
}

// look: {run, stands(cell), labels}. Nothing is touched where nothing changed.
export function paintMapCell(made, model, cell, look) {
  const dim = !look.stands(cell);
  const events = eventsOf(model, cell);
  const mark = look.labels ? cellMark(look.run, cell) : "";
  const kinds = ["y-map-cell", cell.state, ...events];
  if (cell.state !== "free" && cell.used < model.blockSize) kinds.push("part");
  if (dim) kinds.push("dim");
  if (mark.length > 3) kinds.push("long");
  const seen = kinds.join(" ") + "|" + cell.used + "|" + mark + "|" + cell.holders.join();
  if (seen === made.seen) return;
  made.seen = seen;
  made.node.className = kinds.join(" ");
  made.node.style.setProperty("--f", ((100 * cell.used) / model.blockSize).toFixed(1) + "%");
  setText(made.words, mark);
  made.node.setAttribute("aria-label", spokenCell(cell, events));
}

export function spokenCell(cell, events) {
  const words = ["block " + cell.id, stateWords(cell), ...events];
  if (cell.holders.length) words.splice(2, 0, cell.holders.slice(0, 4).join(" and "));
  return words.join(", ");
}

export function stateWords(cell) {
  return cell.state === "shared" ? "shared by " + cell.holders.length : cell.state;
}
