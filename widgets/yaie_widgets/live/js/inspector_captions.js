// The lines around the tokens: what was cached and computed, what the output took, the scale of the colours, notes.

import { clear, el } from "./core_dom.js";
import { count } from "./core_format.js";

export function createCaptions() {
  const prompt = el("div", { class: "y-ins-cap" });
  const output = el("div", { class: "y-ins-cap" });
  const legend = el("div", { class: "y-ins-legend" });
  const notes = el("div", {});
  const chip = (kind, words) => el("span", { class: "y-ins-chip" }, el("i", { class: kind }), words);

  // `scale` is null where no token has a colour.
  function update(one, scale) {
    const start = one.prompt.length;
    const cached = Math.min(one.cached, start);
    const parts = [chip("hit", count(cached) + " cached"), chip("cmp", count(start - cached) + " computed")];
    clear(prompt).append(el("span", {}, "Prompt"), ...parts);
    clear(output).append(el("span", {}, "Output"), el("span", {}, one.stats));
    clear(legend).hidden = scale === null;
    const steps = scale?.labels.map((words, level) => chip("y-ins-step l" + level, words)) ?? [];
    legend.append(el("span", {}, scale?.title ?? ""), ...steps);
    clear(notes).append(...one.notes.map(words => el("div", { class: "y-ins-note" }, words)));
  }

  return { prompt, output, legend, notes, update };
}
