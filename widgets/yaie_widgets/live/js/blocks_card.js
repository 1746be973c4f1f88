// What is known of one block: state, requests, positions, filling, use, what the step did, and its text.

import { clear, el } from "./core_dom.js";
import { count, counted, DASH } from "./core_format.js";
import { stateWords } from "./blocks_cell.js";
import { eventWords, logicalOf, tokensOf } from "./blocks_model.js";
import { markEdges, wholeText } from "./tree_text.js";

const EDGE = 8;
const QUOTE = 240;

export function blockCard() {
  const node = el("div", { class: "y-map-card", role: "tooltip", hidden: true });
  return { node, hide: () => (node.hidden = true), show: (facts, lens) => fillCard(node, facts, lens) };
}

function fillCard(node, facts, lens) {
  clear(node);
  if (lens) node.append(lens);
  const mark = el("i", { class: "y-map-mark " + facts.state });
  const head = el("div", { class: "y-map-card-head" }, mark, el("b", {}, facts.title), facts.words);
  const list = el("dl", {});
  for (const [name, value] of facts.rows) list.append(el("dt", {}, name), el("dd", { title: value }, value));
  node.append(head, list);
  if (facts.text !== null) node.append(el("div", { class: "y-map-quote" }, facts.text));
  node.hidden = false;
}

// The card's content as plain data.
export function blockFacts(run, frame, model, step, id) {
  const cell = model.cells[id];
  const facts = { state: cell.state, title: "Block " + count(id), words: stateWords(cell), rows: [], text: null };
  if (cell.state !== "free") {
    const first = logicalOf(frame, cell, model.blockSize) * model.blockSize;
    const node = frame.nodes.get(cell.node);
    const age = node ? frame.step - node.used_step : 0;
    facts.rows.push(["Requests", cell.holders.join(", ") || "none, tree only"]);
    facts.rows.push(["Positions", count(first) + " to " + count(first + Math.max(cell.used, 1) - 1)]);
    facts.rows.push(["Filled", cell.used + " of " + counted(model.blockSize, "token")]);
    facts.rows.push(["References", count(cell.holders.length)]);
    facts.rows.push(["Last used", age <= 0 ? "this step" : counted(age, "step") + " ago"]);
    facts.text = markEdges(wholeText(run, tokensOf(frame, cell, model.blockSize)).slice(0, QUOTE)) || DASH;
  }
  facts.rows.push(["This step", eventWords(model, frame, step, cell)]);
  return facts;
}

// Beside the block inside an area, never over what lies outside of it. All are boxes in page coordinates.
export function cardPlace(block, area, card) {
  const right = block.right - area.left + EDGE;
  const left = block.left - area.left - EDGE - card.width;
  const x = right + card.width <= area.width ? right : left >= 0 ? left : area.width - card.width;
  const y = Math.min(block.top - area.top - EDGE, area.height - card.height);
  return { x: Math.max(0, x), y: Math.max(0, y) };
}
