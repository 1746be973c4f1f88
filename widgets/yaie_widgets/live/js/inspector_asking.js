// Asking the kernel for a branch: what becomes of the question, in words.

import { el, setText } from "./core_dom.js";

const PATIENCE = 1500;
const LOST = "Not branched: the connection to the kernel is lost";
const BUSY = "The kernel is busy: the branch begins when it hears of it.";

export function createAsking(link) {
  const node = el("div", { class: "y-ins-say", role: "status", hidden: true });
  let asked = 0;
  let known = 1;
  let patience = null;

  function tell(words) {
    setText(node, words);
    node.hidden = !words;
  }

  // Continue answer number `from` at a position of its output with another token.
  function branch(from, position, token) {
    if (position < 0) return;
    if (link.lost) return tell(LOST);
    asked = link.state.answers.length;
    link.send({ kind: "branch", answer: from, position, token });
    clearTimeout(patience);
    patience = setTimeout(() => tell(BUSY), PATIENCE);
    tell("");
  }

  // The number of the answer that was asked for, once it is there; else null.
  function heard({ answers, refused }) {
    if (answers.length > known || refused) {
      clearTimeout(patience);
      tell(refused);
    }
    if (refused) asked = 0;
    known = answers.length;
    if (!asked || known <= asked) return null;
    const number = asked;
    asked = 0;
    return number;
  }

  return { node, branch, heard, destroy: () => clearTimeout(patience) };
}
