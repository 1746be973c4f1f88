// Stop with its acknowledgement, and Copy.

import { el, setText, svg } from "./core_dom.js";

const STOP = "M2.5 2.5h7v7h-7z";
const COPY = "M1.5 1.5h6v2h-4v5h-2zM4.5 4.5h6v6h-6z";
const PATIENCE_MS = 1000;
const COPIED_MS = 1200;

function iconButton(path, word, attrs) {
  const label = el("span", null, word);
  const icon = svg("svg", { width: 12, height: 12, viewBox: "0 0 12 12", "aria-hidden": "true" }, svg("path", { d: path }));
  const node = el("button", { type: "button", ...attrs }, icon, word ? label : null);
  return { node, label };
}

// Says "Stopping" at once. When the kernel does not confirm within a second, `tell` is called with where to press.
export function stopButton({ word, title, narrow, ask, tell }) {
  const look = narrow ? "y-gen-button narrow" : "y-gen-button stop";
  const { node, label } = iconButton(STOP, narrow ? "" : word, { class: look, title, "aria-label": title });
  let timer = 0;
  node.addEventListener("click", event => {
    event.preventDefault();
    if (node.getAttribute("aria-disabled") === "true") return;
    node.setAttribute("aria-disabled", "true");
    setText(label, "Stopping");
    tell("stopping");
    ask();
    timer = setTimeout(() => tell("unheard"), PATIENCE_MS);
  });
  // The kernel has heard: what it says from now on is what counts.
  const heard = () => {
    clearTimeout(timer);
    node.setAttribute("aria-disabled", "true");
    setText(label, "Stopping");
  };
  const over = () => {
    clearTimeout(timer);
    // The keyboard stays where it was: on the row, or beside the button.
    if (node.matches(":focus")) (node.closest("summary") ?? node.parentNode.querySelector(".copy"))?.focus();
    node.classList.add("gone");
    node.disabled = true;
  };
  return { node, heard, over };
}

export function copyButton(word, title, text) {
  const { node, label } = iconButton(COPY, word, { class: "y-gen-button copy", title, "aria-label": title });
  node.addEventListener("click", async event => {
    event.preventDefault();
    const done = await write(text());
    setText(label, done ? "Copied" : "Failed");
    setTimeout(() => setText(label, word), COPIED_MS);
  });
  return node;
}

// A page that is not served from this machine has no clipboard object; an old way is left then.
async function write(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = el("textarea", { class: "y-gen-said" });
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}
