// The original and its branches, as tabs; shown once there is a branch.

import { clear, el, roving } from "./core_dom.js";
import { count } from "./core_format.js";
import { tokenAt, wordsOf } from "./inspector_answer.js";

// `choose(number)` and `stop(number)` are called for clicks.
export function createTabs(choose, stop) {
  const list = el("div", { class: "y-ins-tablist", role: "tablist", "aria-label": "Original and branches" });
  const side = el("span", { class: "y-meta" });
  const node = el("div", { class: "y-ins-tabs", hidden: true }, list, side);
  const tabs = roving(list, "[role=tab]");

  function update(answers, current) {
    node.hidden = answers.length < 2;
    const names = answers.map(tabName);
    const key = names.join("\n") + current;
    if (key === node.dataset.key) return;
    node.dataset.key = key;
    const focused = list.contains(document.activeElement);
    clear(list).append(...names.map((words, number) => tab(words, number, number === current)));
    clear(side);
    const answer = answers[current];
    if (answer.reuse) side.append(answer.reuse);
    if (current > 0 && answer.running) {
      const click = () => stop(current);
      side.append(el("button", { class: "y-button", type: "button", on: { click } }, "Stop"));
    }
    tabs.settle();
    if (focused) tabs.focus(list.children[current]);
  }

  function tab(words, number, on) {
    const attrs = { class: "y-ins-tab", type: "button", role: "tab", "aria-selected": String(on), tabindex: on ? 0 : -1 };
    return el("button", { ...attrs, title: words, on: { click: () => choose(number) } }, words);
  }

  return { node, update };
}

function tabName(answer, number) {
  if (!answer.origin) return "Original";
  const at = answer.prompt.length + answer.origin.position;
  const taken = wordsOf(answer, tokenAt(answer, at));
  const state = answer.running ? " · " + count(answer.output.length) + " tokens" : "";
  return "Branch " + number + ": token " + count(answer.origin.position + 1) + " “" + taken + "”" + state;
}
