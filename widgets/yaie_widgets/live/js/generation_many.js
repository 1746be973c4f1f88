// Many requests: one row each, which opens to show the whole.

import { clear, el, setText } from "./core_dom.js";
import { visibleLine } from "./core_format.js";
import { copyButton, stopButton } from "./generation_buttons.js";
import { UNHEARD, generationBody } from "./generation_one.js";
import { genBar, genFigure, genSign, genState } from "./generation_parts.js";
import { ended, lastLine, runningFirst } from "./generation_state.js";

const TALL = 12;
const NAMES = ["Request", "Prompt and last line of output", "Progress", "Output", "Rate", "First token", ""];
const LEGEND = [
  ["cached", "cached prompt"],
  ["prefill", "computed prompt"],
  ["decode", "output"],
];

function generationRow(index, send) {
  const id = el("span", { class: "y-gen-cut" });
  const state = genState(10);
  state.node.className = "y-gen-sub";
  const prompt = el("span", { class: "y-gen-cut y-gen-quiet" });
  // While it is written the end of the line is in sight, afterwards its beginning.
  const words = el("span");
  const last = el("span", { class: "y-gen-end" }, words);
  const bar = genBar();
  const figures = { Output: "y-gen-num", Rate: "y-gen-num", "First token": "y-gen-num first" };
  for (const name in figures) figures[name] = genFigure("span", { class: figures[name] });
  let row = null;
  let local = "";
  const tell = () => state.update(row.mark, local && !ended(row) ? local : row.state);
  const stop = stopButton({
    word: "",
    narrow: true,
    title: "Stop",
    ask: () => send({ kind: "stop", row: index }),
    tell: what => {
      local = what === "unheard" ? UNHEARD : "stopping";
      tell();
    },
  });
  const summary = el(
    "summary",
    { class: "y-gen-row" },
    el("span", null, id, state.node),
    el("span", { class: "y-gen-two" }, prompt, last),
    bar.node,
    Object.values(figures).map(figure => figure.node),
    stop.node,
  );
  const node = el("details", { class: "y-gen-item" }, summary);
  let body = null;
  let epoch = 0;
  const fill = () => {
    if (!node.open || !row) return;
    if (!body) node.append((body = generationBody()).node);
    body.update(row, epoch);
  };
  node.addEventListener("toggle", fill);
  const update = (now, since, lost) => {
    if (now === row && since === epoch && !lost) return;
    row = now;
    epoch = since;
    setText(id, row.id);
    stop.node.setAttribute("aria-label", "Stop " + row.id);
    if (row.stopping) {
      local = "stopping";
      stop.heard();
    }
    if (lost || ended(row)) stop.over();
    tell();
    setText(prompt, row.prompt.lines.length ? row.prompt.lines[0].map(piece => piece[0]).join("") : "");
    const line = visibleLine(lastLine(row.text));
    last.className = line && !ended(row) ? "y-gen-end" : "y-gen-cut";
    setText(words, (ended(row) ? [...line.slice(0, 400)].slice(0, 200).join("") : line.slice(-200)) || row.status);
    bar.update(row.bar.slice(0, 3), row.bar[4]);
    for (const [name, figure, unit] of row.stats) figures[name]?.update(figure, unit.replace("tokens", "tok"));
    fill();
  };
  return { node, update };
}

export function generationMany(send) {
  const title = el("b", { class: "y-gen-id" });
  const note = el("span", { class: "y-gen-note", role: "status" });
  let generation = null;
  let rows = [];
  let sorted = false;
  const copy = copyButton("Copy all", "Copy all texts", () => generation.rows.map(row => row.text).join("\n\n"));
  const stop = stopButton({
    word: "Stop all",
    title: "Stop all requests",
    ask: () => send({ kind: "stop", row: null }),
    tell: what => what === "unheard" && setText(note, UNHEARD),
  });
  const order = el("button", { type: "button", class: "y-gen-button", "aria-pressed": "false" }, "Running first");
  const list = el("div", { class: "y-gen-list" });
  const place = () => {
    const wanted = sorted ? runningFirst(generation.rows) : generation.rows.map((row, index) => index);
    wanted.forEach((index, at) => {
      if (list.children[at] !== rows[index].node) list.insertBefore(rows[index].node, list.children[at] ?? null);
    });
  };
  order.addEventListener("click", () => {
    sorted = !sorted;
    order.setAttribute("aria-pressed", String(sorted));
    place();
  });
  const head = el("div", { class: "y-gen-head" }, title, note, el("i", { class: "y-gen-gap" }), order, copy, stop.node);
  const names = el("div", { class: "y-gen-row y-gen-names", "aria-hidden": "true" }, NAMES.map(name => el("span", null, name)));
  const chips = LEGEND.map(([sign, words]) => el("span", { class: "y-gen-chip" }, genSign(sign), words));
  const node = el("div", null, head, names, list, el("div", { class: "y-gen-legend" }, chips));
  const update = (now, lost) => {
    if (now.rows.length < rows.length) {
      rows = [];
      clear(list);
    }
    generation = now;
    setText(title, now.title);
    setText(note, lost || now.tally);
    list.classList.toggle("tall", now.total > TALL);
    order.hidden = now.total <= TALL;
    while (rows.length < now.rows.length) rows.push(generationRow(rows.length, send));
    place();
    now.rows.forEach((row, index) => rows[index].update(row, now.epoch, lost));
    if (lost || (now.rows.length >= now.total && now.rows.every(ended))) stop.over();
  };
  return { node, update };
}
