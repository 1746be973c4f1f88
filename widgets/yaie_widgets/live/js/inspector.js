// The token inspector: prompt and output token by token, one token in detail, and branches.

import { hideTwin } from "./core_link.js";
import { clear, el, setAttr, setText, viewRoot, watchVisible } from "./core_dom.js";
import { count } from "./core_format.js";
import { bestOther, endOf, promptParts } from "./inspector_answer.js";
import { createFlow } from "./inspector_flow.js";
import { createPanel } from "./inspector_panel.js";
import { createTabs } from "./inspector_tabs.js";

const PATIENCE = 1500;
const LOST = "Not branched: the connection to the kernel is lost";
const BUSY = "The kernel is busy: the branch begins when it hears of it.";

// Mounts the view of a link whose state are answers. Gives back what ends it.
export function showInspector(model, link, host) {
  const root = viewRoot(host, { label: "Token inspector" });
  root.classList.add("y-ins");
  hideTwin(model, root, el);
  let current = 0;
  let picked = null;
  let pinned = false;
  let hovered = null;
  let whole = false;
  let asked = 0;
  let known = 1;
  let patience = null;

  const title = el("h3", { class: "y-title" });
  const counts = el("span", { class: "y-meta" });
  const ended = el("span", { class: "y-hidden", role: "status" });
  const say = el("div", { class: "y-ins-say", role: "status", hidden: true });
  const ask = { ids: false, ticks: true, colour: null };
  const toggle = (words, name) => {
    const click = () => ((ask[name] = !ask[name]), draw());
    return el("button", { class: "y-button", type: "button", on: { click } }, words);
  };
  const colourButton = (words, name) => {
    const click = () => ((ask.colour = name), draw());
    return el("button", { class: "y-button", type: "button", dataset: { colour: name }, on: { click } }, words);
  };
  const colours = [colourButton("Probability", "probability"), colourButton("Entropy", "entropy")];
  const colourGroup = el("span", { class: "y-group", role: "group", "aria-label": "Colour by" }, colours);
  const ids = toggle("IDs", "ids");
  const ticks = toggle("Blocks", "ticks");
  const tools = el("span", { class: "y-tools" }, colourGroup, ids, ticks);
  const head = el("header", { class: "y-head" }, title, counts, ended, el("span", { class: "y-space" }), tools);

  const tabs = createTabs(choose, number => link.send({ kind: "stop", answer: number }));
  const panel = createPanel(branch);
  const promptCap = el("div", { class: "y-ins-cap" });
  const outputCap = el("div", { class: "y-ins-cap" });
  const scroller = el("div", { class: "y-ins-scroll" });
  const legend = el("div", { class: "y-ins-legend" });
  const notes = el("div", {});
  const ctx = { scroller, ids: false, ticks: true, scales: null, colour: "", shown, hover, select, key, expand };
  const flows = [createFlow(ctx, "Prompt tokens"), createFlow(ctx, "Output tokens")];
  scroller.append(promptCap, flows[0].node, outputCap, flows[1].node);
  const left = el("div", { class: "y-ins-left" }, scroller, legend, notes);
  root.append(head, tabs.node, say, el("div", { class: "y-ins-two" }, left, panel.node));

  const answer = () => link.state.answers[current];

  // The token in the panel: under the pointer, picked, or the one that was least to be expected.
  function shown() {
    const last = endOf(answer()) - 1;
    for (const at of pinned ? [picked] : [hovered, picked]) if (at !== null && at <= last) return at;
    const first = answer().prompt.length;
    return answer().least ?? (first <= last ? first : last >= 0 ? last : null);
  }

  function hover(at) {
    if (at === hovered) return;
    hovered = at;
    point();
  }

  function select(at, clicked) {
    pinned = clicked && !(pinned && picked === at);
    picked = at;
    point();
  }

  function point() {
    for (const flow of flows) flow.mark();
    panel.update(answer(), shown(), pinned);
  }

  function key(event) {
    if (event.key === "Enter" || event.key === " ") select(shown(), true);
    else if (event.key === "Escape") {
      pinned = false;
      picked = hovered = null;
      point();
    } else if (event.key === "b") {
      const other = shown() === null ? null : bestOther(answer(), shown());
      if (other) branch(other[0]);
    } else return;
    event.preventDefault();
  }

  function expand() {
    whole = true;
    draw();
  }

  function choose(number) {
    current = number;
    picked = hovered = null;
    pinned = whole = false;
    draw();
    const { origin, prompt } = answer();
    if (origin) flows[1].reveal(prompt.length + origin.position);
  }

  function branch(token) {
    const position = shown() - answer().prompt.length;
    if (position < 0) return;
    if (link.lost) return tell(LOST);
    asked = link.state.answers.length;
    link.send({ kind: "branch", answer: current, position, token });
    clearTimeout(patience);
    patience = setTimeout(() => tell(BUSY), PATIENCE);
    tell("");
  }

  function tell(words) {
    setText(say, words);
    say.hidden = !words;
  }

  // The state changed: a new answer, a longer one, or a refusal.
  function update() {
    const state = link.state;
    if (!state) return;
    if (state.gap) return link.send({ kind: "ready", seq: -1 });
    if (state.answers.length > known || state.refused) {
      clearTimeout(patience);
      tell(state.refused);
    }
    if (state.refused) asked = 0;
    const mine = asked && state.answers.length > asked;
    known = state.answers.length;
    if (mine) {
      const number = asked;
      asked = 0;
      return choose(number);
    }
    draw();
  }

  function draw() {
    const state = link.state;
    const one = answer();
    Object.assign(ctx, { ids: ask.ids, ticks: ask.ticks && Boolean(one.blocks), scales: state.scales });
    ctx.colour = ask.colour ?? state.colour;
    root.classList.toggle("ids", ask.ids);
    const coloured = Boolean(one.rows || one.prompt_rows);
    setText(title, one.title);
    if (current) setText(ended, one.running ? "" : "finished, " + count(one.output.length) + " tokens");
    setText(counts, one.counts + (link.lost ? " · Connection to the kernel lost" : ""));
    setAttr(ids, "aria-pressed", ask.ids);
    setAttr(ticks, "aria-pressed", ask.ticks);
    for (const each of colours) setAttr(each, "aria-pressed", each.dataset.colour === ctx.colour);
    colourGroup.hidden = !coloured;
    tabs.update(state.answers, current);
    captions(one);
    drawLegend(coloured);
    clear(notes).append(...one.notes.map(words => el("div", { class: "y-ins-note" }, words)));
    flow();
    panel.update(one, shown(), pinned);
  }

  function captions(one) {
    const start = one.prompt.length;
    const cached = Math.min(one.cached, start);
    const chip = (kind, number, word) =>
      el("span", { class: "y-ins-chip" }, el("i", { class: kind }), count(number) + " " + word);
    const chips = [chip("hit", cached, "cached"), chip("cmp", start - cached, "computed")];
    clear(promptCap).append(el("span", {}, "Prompt"), ...chips);
    clear(outputCap).append(el("span", {}, "Output"), el("span", {}, one.stats));
  }

  function drawLegend(coloured) {
    clear(legend).hidden = !coloured;
    if (!coloured) return;
    const scale = ctx.scales[ctx.colour];
    const step = (words, level) => el("span", { class: "y-ins-chip" }, el("i", { class: "y-ins-step l" + level }), words);
    legend.append(el("span", {}, scale.title), ...scale.labels.map(step));
  }

  function flow() {
    const one = answer();
    const start = one.prompt.length;
    const parts = whole ? (start ? [[0, start]] : []) : promptParts(start, Math.min(one.cached, start));
    flows[0].update(one, parts, 0, start);
    flows[1].update(one, one.output.length ? [[start, endOf(one)]] : [], start, endOf(one));
  }

  const off = link.on(update);
  const sized = new ResizeObserver(() => link.state && flow());
  sized.observe(scroller);
  scroller.addEventListener("scroll", () => flows.forEach(each => each.draw()), { passive: true });
  const blind = watchVisible(root, visible => link.see(root, visible));
  update();
  return () => {
    off();
    blind();
    sized.disconnect();
    clearTimeout(patience);
    link.leave(root);
    root.remove();
  };
}
