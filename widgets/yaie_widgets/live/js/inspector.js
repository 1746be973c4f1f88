// The token inspector: prompt and output token by token, one token in detail, and branches.

import { hideTwin } from "./core_link.js";
import { el, viewRoot, watchVisible } from "./core_dom.js";
import { bestOther, endOf, promptParts } from "./inspector_answer.js";
import { createAsking } from "./inspector_asking.js";
import { createCaptions } from "./inspector_captions.js";
import { createFlow } from "./inspector_flow.js";
import { createHead } from "./inspector_head.js";
import { createPanel } from "./inspector_panel.js";
import { createPick } from "./inspector_pick.js";
import { createTabs } from "./inspector_tabs.js";

// Mounts the view of a link whose state are answers. Gives back what ends it.
export function showInspector(model, link, host) {
  const root = viewRoot(host, { label: "Token inspector" });
  root.classList.add("y-ins");
  hideTwin(model, root, el);
  const view = createInspector(link, root);
  const update = () => {
    if (!link.state) return;
    if (link.state.gap) return link.send({ kind: "ready", seq: -1 });
    view.update();
  };
  const off = link.on(update);
  const blind = watchVisible(root, visible => link.see(root, visible));
  update();
  return () => {
    off();
    blind();
    view.destroy();
    link.leave(root);
    root.remove();
  };
}

function createInspector(link, root) {
  const state = { current: 0, whole: false, ask: { ids: false, ticks: true, colour: null } };
  const answer = () => link.state.answers[state.current];
  const pick = createPick(answer, point);
  const asking = createAsking(link);
  const head = createHead(state.ask, draw);
  const captions = createCaptions();
  const tabs = createTabs(choose, number => link.send({ kind: "stop", answer: number }));
  const panel = createPanel(branch);
  const scroller = el("div", { class: "y-ins-scroll" });
  const ctx = { scroller, ids: false, ticks: true, scales: null, colour: "", ...pick, key, expand };
  const flows = [createFlow(ctx, "Prompt tokens"), createFlow(ctx, "Output tokens")];
  scroller.append(captions.prompt, flows[0].node, captions.output, flows[1].node);
  const left = el("div", { class: "y-ins-left" }, scroller, captions.legend, captions.notes);
  root.append(head.node, tabs.node, asking.node, el("div", { class: "y-ins-two" }, left, panel.node));
  const sized = new ResizeObserver(() => link.state && flow());
  sized.observe(scroller);
  scroller.addEventListener("scroll", () => flows.forEach(each => each.draw()), { passive: true });

  function point() {
    for (const each of flows) each.mark();
    panel.update(answer(), pick.shown(), pick.pinned);
  }

  function key(event) {
    if (event.key === "Enter" || event.key === " ") pick.select(pick.shown(), true);
    else if (event.key === "Escape") {
      pick.clear();
      point();
    } else if (event.key === "b") {
      const other = pick.shown() === null ? null : bestOther(answer(), pick.shown());
      if (other) branch(other[0]);
    } else return;
    event.preventDefault();
  }

  function branch(token) {
    asking.branch(state.current, pick.shown() - answer().prompt.length, token);
  }

  function expand() {
    state.whole = true;
    draw();
  }

  function choose(number) {
    Object.assign(state, { current: number, whole: false });
    pick.clear();
    draw();
    const { origin, prompt } = answer();
    if (origin) flows[1].reveal(prompt.length + origin.position);
  }

  // A new answer, a longer one, or a refusal.
  function update() {
    const mine = asking.heard(link.state);
    if (mine === null) draw();
    else choose(mine);
  }

  function draw() {
    const { answers, scales, colour } = link.state;
    const { ask, current } = state;
    const one = answer();
    Object.assign(ctx, { ids: ask.ids, ticks: ask.ticks && Boolean(one.blocks), scales, colour: ask.colour ?? colour });
    root.classList.toggle("ids", ask.ids);
    const coloured = Boolean(one.rows || one.prompt_rows);
    head.update(one, { branch: current > 0, lost: link.lost, coloured, shown: ctx.colour });
    tabs.update(answers, current);
    captions.update(one, coloured ? scales[ctx.colour] : null);
    flow();
    panel.update(one, pick.shown(), pick.pinned);
  }

  function flow() {
    const one = answer();
    const start = one.prompt.length;
    const parts = state.whole ? (start ? [[0, start]] : []) : promptParts(start, Math.min(one.cached, start));
    flows[0].update(one, parts, 0, start);
    flows[1].update(one, one.output.length ? [[start, endOf(one)]] : [], start, endOf(one));
  }

  function destroy() {
    sized.disconnect();
    asking.destroy();
  }

  return { update, destroy };
}
