// The parts of a generation that the static form has, too: signs, bar, prompt, figures.

import { clear, el, setText, svg } from "./core_dom.js";

const SIGNS = {
  waiting: ["M.5 4.5h11v3H.5z", "line edge"],
  prefill: ["M0 2h12v8H0z", "prefill"],
  cached: ["M0 2h12v8H0z", "cached"],
  decode: ["M0 4h12v4H0z", "decode"],
  preempted: ["M.5 2.5h11v7H.5zM2 9l6-6M6 9l5-5", "line lost"],
  swapped: ["M.5 2.5h11v7H.5zM10 9L4 3M6 9L1 4", "line swapped"],
  stop: ["M6 2.6a3.4 3.4 0 100 6.8 3.4 3.4 0 100-6.8z", "ink"],
  length: ["M2.8 2.8h6.4v6.4H2.8z", "ink"],
  cancelled: ["M3 3L9 9M9 3L3 9", "line ink"],
  failed: ["M3 3L9 9M9 3L3 9", "line ink"],
};

export function genSign(name, size = 12) {
  const [path, kind] = SIGNS[name] ?? SIGNS.waiting;
  const box = { class: "y-gen-sign " + kind, width: size, height: size, viewBox: "0 0 12 12", "aria-hidden": "true" };
  return svg("svg", box, svg("path", { d: path }));
}

// A sign with a word that changes; the sign is drawn anew only when it is another one.
export function genState(size = 12, tag = "span") {
  const words = el("span", { class: "y-gen-cut" });
  const node = el(tag, null, genSign("waiting", size), words);
  let mark = "waiting";
  const update = (name, text) => {
    if (name !== mark) node.replaceChild(genSign((mark = name), size), node.firstChild);
    if (words.textContent !== text) words.title = text;
    setText(words, text);
  };
  return { node, update };
}

// Cached, computed and output tokens on a line.
export function genBar() {
  const shares = ["cached", "prefill", "decode"].map(name => el("i", { class: name }));
  const node = el("span", { class: "y-gen-bar", "aria-hidden": "true" }, shares);
  const update = (parts, total) => {
    shares.forEach((share, index) => {
      const width = ((parts[index] ?? 0) * 100) / total + "%";
      if (share.style.width !== width) share.style.width = width;
    });
  };
  return { node, update };
}

const pieces = list => list.map(([text, kind]) => el("span", { class: kind }, text));

// The short form in one or two lines; a click or Enter shows the whole.
export function genPrompt() {
  const summary = el("summary", { title: "Show the whole prompt" });
  const node = el("details", { class: "y-gen-prompt" }, summary);
  let shown = null;
  const update = prompt => {
    if (prompt === shown || !prompt) return;
    shown = prompt;
    const lines = prompt.lines.map((line, number) =>
      el("span", { class: number ? "y-gen-line tail" : "y-gen-line" }, el("span", null, pieces(line))),
    );
    clear(summary).append(...lines, el("span", { class: "y-gen-whole" }, pieces(prompt.whole)));
  };
  return { node, update };
}

// Names over figures, each in a slot of its own.
export function genStats() {
  const node = el("dl", { class: "y-gen-stats" });
  let names = "";
  let slots = [];
  const update = stats => {
    const wanted = stats.map(stat => stat[0]).join();
    if (wanted !== names) {
      names = wanted;
      slots = stats.map(stat => genFigure("dd"));
      clear(node).append(...slots.map((slot, index) => el("div", null, el("dt", null, stats[index][0]), slot.node)));
    }
    stats.forEach(([, figure, unit], index) => slots[index].update(figure, unit));
  };
  return { node, update };
}

// A figure and its unit.
export function genFigure(tag, attrs) {
  const figure = document.createTextNode("");
  const unit = el("i");
  const node = el(tag, attrs, figure, unit);
  const update = (value, of) => {
    if (figure.data !== value) figure.data = value;
    setText(unit, of ? " " + of : "");
  };
  return { node, update };
}
