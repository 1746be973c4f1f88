// The right panel: one token, its figures, and the candidates at its place.

import { clear, el } from "./core_dom.js";
import { panelOf, percent, probability, runsOf, wordsOf } from "./inspector_answer.js";
import { runNodes } from "./inspector_flow.js";

const TIPS = {
  Entropy: "Of the whole distribution, as far as the recorded candidates tell: at least and at most",
  Block: "Logical block, physical block where it is known, slot in it",
  Rank: "1 is the most likely token",
};
const TIP = "Continue from here with this token (b: with the most likely other one)";
const ROW = 22;
const FIXED = 212;

// `branch(token id)` is called for a click on Branch; only output tokens have it.
export function createPanel(branch) {
  const node = el("div", { class: "y-ins-panel" });
  let drawn = "";

  function update(answer, position, pinned) {
    const key = [answer.name, answer.output.length, answer.running, position, pinned].join();
    if (key === drawn) return;
    drawn = key;
    clear(node);
    const most = mostCandidates(answer);
    node.style.minHeight = (most ? FIXED + ROW * most : 0) + "px";
    if (position === null) return;
    const panel = panelOf(answer, position);
    const name = el("b", { title: wordsOf(answer, panel.id) }, runNodes(runsOf(answer, panel.id)));
    const place = el("span", { title: pinned ? "Pinned; Esc lets go" : null }, panel.place + (pinned ? " · pinned" : ""));
    node.append(el("div", { class: "y-ins-ptop" }, name, place));
    const pairs = panel.figures.flatMap(([term, value]) => [el("dt", { title: TIPS[term] }, term), el("dd", {}, value)]);
    node.append(el("dl", { class: "y-ins-kv" }, pairs));
    if (!panel.candidates.length) return;
    node.append(el("div", { class: "y-ins-cap" }, "Alternatives at this position"));
    const open = position >= answer.prompt.length;
    node.append(...panel.candidates.map(one => candidateRow(answer, panel.id, one, open)));
  }

  function candidateRow(answer, chosen, candidate, open) {
    const [id] = candidate;
    const share = probability(candidate);
    const words = wordsOf(answer, id);
    const on = id === chosen;
    const click = () => branch(id);
    const button = { class: "y-button y-ins-branch", type: "button", "aria-label": "Branch with " + words, title: TIP, on: { click } };
    const bar = el("i", { style: { width: Math.max(0.8, share * 100).toFixed(1) + "%" } });
    return el(
      "div",
      { class: "y-ins-alt" + (on ? " on" : "") },
      el("span", { title: words + " · id " + id }, runNodes(runsOf(answer, id))),
      el("span", { class: "y-ins-bar", "aria-hidden": "true" }, bar),
      el("span", {}, percent(share)),
      el("span", {}, on ? "chosen" : open ? el("button", button, "Branch") : null),
    );
  }

  return { node, update };
}

// So many rows that the panel keeps its height from token to token.
function mostCandidates(answer) {
  const rows = [...(answer.rows ?? []).slice(0, 500), ...(answer.prompt_rows ?? []).slice(0, 500)];
  return rows.reduce((most, row) => Math.max(most, row ? row[2].length : 0), 0);
}
