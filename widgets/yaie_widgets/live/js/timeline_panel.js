// The lower part of the timeline: the step at the cursor in figures, with its batch, its blocks and its time.
import { clear, el, setAttr, setText, svg } from "./core_dom.js";
import { count, counted, ms, pct, visibleLine } from "./core_format.js";
import { lostIn } from "./lives.js";
import { tokensOf, totalMs } from "./story.js";
import { markChip, timelineMark } from "./timeline_marks.js";
import { PHASES } from "./timeline_trace.js";

const EVENTS = [
  ["none", "Allocated", "allocated"],
  ["none", "Freed", "freed"],
  ["evicted", "Evicted", "evicted"],
  ["copied", "Copied", "copied"],
  ["none", "Swapped", "swapped"],
];

export function stepPanel() {
  const batch = panelPart();
  const blocks = panelPart("Blocks");
  const time = panelPart("Time");
  const budget = stackBar(["prefill", "decode"]);
  const split = stackBar(PHASES);
  const rows = el("tbody");
  const columns = [["Request"], ["Work"], ["Cached", "y-num"], ["Tokens", "y-num"]].map(([word, look]) =>
    el("th", { class: look, scope: "col" }, word));
  const work = el("table", { class: "y-table y-tl-batch" }, el("thead", {}, el("tr", {}, columns)), rows);
  const lines = figureLines(EVENTS.map(([mark, word]) => [mark, word]));
  const after = figureLines([["free", "Free after"], ["cache", "Cached after"], ["held", "Held after"]]);
  const phases = figureLines(PHASES.map(phase => ["none", phase]), true);
  phases.rows.forEach((row, at) => {
    row.mark.replaceWith(el("i", { class: "y-tl-swatch y-tl-" + PHASES[at], "aria-hidden": "true" }));
  });
  const list = el("div", { class: "y-tl-list", tabindex: 0, role: "region", "aria-label": "Batch of the step" }, work);
  batch.node.append(budget.node, list);
  blocks.node.append(lines.node, after.node);
  time.node.append(split.node, phases.node);
  const node = el("div", { class: "y-tl-panel", role: "group", "aria-label": "Step at the cursor" });
  node.append(batch.node, blocks.node, time.node);

  // `step` is the record, `one` its figures.
  function update(run, step, one, selected) {
    const tokens = tokensOf(one);
    const limit = run.engine.max_num_batched_tokens;
    setText(batch.title, "Step " + count(one.step));
    setText(batch.figure, limit ? count(tokens) + " of " + counted(limit, "token") : counted(tokens, "token"));
    budget.set([one.prefill, one.decode], limit || tokens);
    fillBatch(rows, batchOf(step), selected);
    setText(blocks.figure, run.engine.num_blocks ? counted(run.engine.num_blocks, "block") : "");
    lines.set(EVENTS.map(([, , key]) => [key === "swapped" ? swapWords(step.swapped) : count(step[key]?.length ?? 0)]));
    const held = one.held + one.shared;
    const free = run.engine.num_blocks ? run.engine.num_blocks - held - one.cached : null;
    after.set([[count(free)], [count(one.cached)], [count(held)]]);
    setText(after.rows[2].word, "Held after, " + count(one.shared) + " shared");
    const whole = totalMs(one);
    setText(time.figure, ms(whole));
    split.set(one.ms, whole);
    phases.set(one.ms.map(part => [ms(part), whole ? pct(part / whole) : ""]));
  }

  return { node, update };
}

// How many blocks went out to the host and how many came in; those of the host have numbers below 0.
function swapWords(pairs = []) {
  const out = pairs.filter(([, target]) => target < 0).length;
  return pairs.length ? count(out) + " out + " + count(pairs.length - out) + " in" : "0";
}

// What a step did: prefill chunks first, then decodes, then who lost its place.
export function batchOf(step) {
  const hits = new Map(step.admitted ?? []);
  const entries = step.batch.map(([label, work, tokens]) => ({ label, work, cached: hits.get(label) ?? 0, tokens }));
  entries.sort((a, b) => (a.work === "decode") - (b.work === "decode"));
  const running = new Set(entries.map(entry => entry.label));
  const lost = [...lostIn(step)].filter(([label]) => !running.has(label));
  return [...entries, ...lost.map(([label, work]) => ({ label, work, cached: 0, tokens: null }))];
}

function fillBatch(body, works, selected) {
  while (body.rows.length > works.length) body.lastChild.remove();
  while (body.rows.length < works.length) {
    const work = el("td", {}, el("span", { class: "y-chip" }, timelineMark("none"), el("span")));
    const [label, cached, tokens] = ["y-one", "y-num", "y-num"].map(look => el("td", { class: look }));
    body.append(el("tr", {}, label, work, cached, tokens));
  }
  works.forEach((one, at) => {
    const row = body.rows[at];
    const [label, work, cached, tokens] = row.cells;
    setText(label, visibleLine(one.label));
    label.title = visibleLine(one.label);
    setAttr(row, "data-selected", one.label === selected ? "" : null);
    if (row.dataset.work !== one.work) work.firstChild.replaceChild(timelineMark(one.work), work.firstChild.firstChild);
    row.dataset.work = one.work;
    setText(work.firstChild.lastChild, one.work);
    setText(cached, one.cached ? count(one.cached) : "");
    setText(tokens, count(one.tokens));
  });
}

function panelPart(words = "") {
  const title = el("span", { class: "y-tl-title" }, words);
  const figure = el("span", { class: "y-num" });
  return { node: el("div", { class: "y-tl-part" }, el("div", { class: "y-tl-line" }, title, figure)), title, figure };
}

// Lines of a mark, a word and figures at the right.
function figureLines(entries, share = false) {
  const rows = entries.map(([kind, words]) => {
    const chip = markChip(kind, el("span", {}, words));
    const figures = [el("td", { class: "y-num" }), share ? el("td", { class: "y-num y-tl-share" }) : null];
    return { node: el("tr", {}, el("td", {}, chip), figures), mark: chip.firstChild, word: chip.lastChild, figures };
  });
  const node = el("table", { class: "y-table" }, el("tbody", {}, rows.map(row => row.node)));
  const set = values => values.forEach((each, at) => each.forEach((text, k) => setText(rows[at].figures[k], text)));
  return { node, rows, set };
}

// A bar of parts of a whole.
function stackBar(roles) {
  const box = { width: "100%", height: 10, viewBox: "0 0 100 10", preserveAspectRatio: "none" };
  const node = svg("svg", { class: "y-tl-bar", ...box, "aria-hidden": "true" });
  function set(values, whole) {
    clear(node).append(svg("rect", { class: "y-tl-rest", y: 4.5, width: 100, height: 1 }));
    let x = 0;
    values.forEach((value, at) => {
      const width = whole ? (100 * value) / whole : 0;
      const thin = roles[at] === "decode";
      node.append(svg("rect", { class: "y-tl-" + roles[at], x, width, y: thin ? 2 : 0, height: thin ? 6 : 10 }));
      x += width;
    });
  }
  return { node, set };
}
