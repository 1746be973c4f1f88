// One request in full: what it was asked, what it says, its figures.

import { el, setText } from "./core_dom.js";
import { copyButton, stopButton } from "./generation_buttons.js";
import { genBar, genPrompt, genSign, genState, genStats } from "./generation_parts.js";
import { ended } from "./generation_state.js";
import { genText } from "./generation_text.js";

export const UNHEARD = "Press ■ in the toolbar";

// Prompt, text and figures; of a row of many, too.
export function generationBody() {
  const bar = genBar();
  const prompt = genPrompt();
  const text = genText();
  const stats = genStats();
  const size = el("span", { class: "y-gen-small" });
  const cached = el("span");
  const computed = el("span");
  const chip = (sign, words) => el("span", { class: "y-gen-chip" }, genSign(sign), words);
  const chips = el("span", { class: "y-gen-chips" }, chip("cached", cached), chip("prefill", computed));
  const split = el("div", { class: "y-gen-split" }, size, bar.node, chips);
  const node = el("div", { class: "y-gen-body" }, split, prompt.node, text.node, stats.node);
  const update = (row, epoch) => {
    setText(size, row.size);
    setText(cached, row.parts[0]);
    setText(computed, row.parts[1]);
    // The bar is the prompt's alone here.
    bar.update([row.bar[0], row.bar[1], 0], row.bar[3]);
    prompt.update(row.prompt);
    text.update(row.text, epoch);
    stats.update(row.stats);
  };
  return { node, update };
}

// What a screen reader hears: the state without its figures, and the end.
export function spoken(row) {
  return ended(row) ? row.status : row.state;
}

export function generationOne(send) {
  const id = el("b", { class: "y-gen-id" });
  const state = genState();
  state.node.className = "y-gen-state";
  const said = el("span", { class: "y-gen-said", role: "status" });
  const body = generationBody();
  let row = null;
  let local = "";
  const show = () => {
    if (!row) return;
    state.update(row.mark, local && !ended(row) ? local : row.status);
    setText(said, local && !ended(row) ? local : spoken(row));
  };
  const stop = stopButton({
    word: "Stop",
    title: "Stop this request",
    ask: () => send({ kind: "stop", row: 0 }),
    tell: what => {
      local = what === "unheard" ? UNHEARD : "Stopping";
      show();
    },
  });
  const copy = copyButton("Copy", "Copy the text", () => row?.text ?? "");
  const head = el("div", { class: "y-gen-head" }, id, state.node, said, el("i", { class: "y-gen-gap" }), copy, stop.node);
  const node = el("div", null, head, body.node);
  const update = (generation, lost) => {
    row = generation.rows[0];
    if (!row) return;
    setText(id, row.id);
    if (row.stopping) {
      local = "Stopping";
      stop.heard();
    }
    if (lost) local = lost;
    if (lost || ended(row)) stop.over();
    body.update(row, generation.epoch);
    show();
  };
  return { node, update };
}
