// Title and figures of the answer, and how its tokens are coloured and marked.

import { el, setAttr, setText } from "./core_dom.js";
import { count } from "./core_format.js";

// `ask` is {ids, ticks, colour}: what the buttons ask for; changed() is called after each press.
export function createHead(ask, changed) {
  const button = (words, click, data) => {
    const press = () => (click(), changed());
    return el("button", { class: "y-button", type: "button", dataset: data, on: { click: press } }, words);
  };
  const toggle = (words, name) => button(words, () => (ask[name] = !ask[name]), {});
  const colour = (words, name) => button(words, () => (ask.colour = name), { colour: name });
  const colours = [colour("Probability", "probability"), colour("Entropy", "entropy")];
  const group = el("span", { class: "y-group", role: "group", "aria-label": "Colour by" }, colours);
  const ids = toggle("IDs", "ids");
  const ticks = toggle("Blocks", "ticks");
  const title = el("h3", { class: "y-title" });
  const counts = el("span", { class: "y-meta" });
  const ended = el("span", { class: "y-hidden", role: "status" });
  const tools = el("span", { class: "y-tools" }, group, ids, ticks);
  const node = el("header", { class: "y-head" }, title, counts, ended, el("span", { class: "y-space" }), tools);

  // The end of a branch is said; the first answer had ended before.
  function update(one, { branch, lost, coloured, shown }) {
    setText(title, one.title);
    if (branch) setText(ended, one.running ? "" : "finished, " + count(one.output.length) + " tokens");
    setText(counts, one.counts + (lost ? " \u00b7 Connection to the kernel lost" : ""));
    setAttr(ids, "aria-pressed", ask.ids);
    setAttr(ticks, "aria-pressed", ask.ticks);
    for (const each of colours) setAttr(each, "aria-pressed", each.dataset.colour === shown);
    group.hidden = !coloured;
  }

  return { node, update };
}
