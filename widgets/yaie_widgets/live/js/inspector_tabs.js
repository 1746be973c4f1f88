// The original and its branches, as tabs; shown once there is a branch.

import { el, roving, setAttr, setText } from "./core_dom.js";
import { count } from "./core_format.js";
import { tokenAt, wordsOf } from "./inspector_answer.js";

// `choose(number)` and `stop(number)` are called for clicks.
export function createTabs(choose, stop) {
  let current = 0;
  const list = el("div", { class: "y-ins-tablist", role: "tablist", "aria-label": "Original and branches" });
  const reuse = el("span", { class: "y-meta" });
  const click = () => stop(current);
  const button = el("button", { class: "y-button", type: "button", on: { click } }, "Stop");
  const node = el("div", { class: "y-ins-tabs", hidden: true }, list, reuse, button);
  const tabs = roving(list, "[role=tab]");

  function update(answers, number) {
    current = number;
    node.hidden = answers.length < 2;
    while (list.children.length > answers.length) list.lastChild.remove();
    answers.forEach((answer, place) => {
      const tab = list.children[place] ?? list.appendChild(made(place));
      const words = tabName(answer, place);
      setText(tab, words);
      setAttr(tab, "title", words);
      setAttr(tab, "aria-selected", String(place === current));
    });
    tabs.settle();
    setText(reuse, answers[current].reuse);
    button.hidden = !answers[current].running;
  }

  function made(place) {
    const attrs = { class: "y-ins-tab", type: "button", role: "tab", tabindex: -1 };
    return el("button", { ...attrs, on: { click: () => choose(place) } });
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
