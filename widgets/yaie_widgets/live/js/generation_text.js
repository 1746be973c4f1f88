// The text as it arrives: appended, never written anew; the frame grows downwards, and from its full height it scrolls.

import { el } from "./core_dom.js";

const NEAR = 8;

export function genText() {
  const text = document.createTextNode("");
  const caret = el("span", { class: "y-gen-caret", "aria-hidden": "true" });
  const node = el("pre", { class: "y-gen-text", "aria-live": "off", "aria-label": "Generated text" }, text, caret);
  let epoch = -1;
  let length = 0;
  const update = (whole, now) => {
    if (now === epoch && whole.length === length) return;
    const below = node.scrollHeight - node.scrollTop - node.clientHeight;
    if (now === epoch) text.appendData(whole.slice(length));
    else text.data = whole;
    epoch = now;
    length = whole.length;
    // It sticks to the end unless the reader scrolled up; only what scrolls can be reached with the keyboard.
    if (node.scrollHeight <= node.clientHeight) return;
    node.tabIndex = 0;
    if (below < NEAR) node.scrollTop = node.scrollHeight;
  };
  return { node, update };
}
