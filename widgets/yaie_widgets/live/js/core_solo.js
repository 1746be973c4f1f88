// The frame around views: title, what it is of, and what became of its engine.

import { attach, hideTwin } from "./core_link.js";
import { createContext } from "./core_ctx.js";
import { el, setAttr, setText, viewRoot, watchVisible } from "./core_dom.js";
import { count } from "./core_format.js";
import { replayBar } from "./core_replaybar.js";

const GONE = { closed: "Engine unloaded", failed: "Engine failed", draining: "Engine shutting down" };

// What a header says of a source that gives nothing new; "" while it does.
export function stateLine(run, lost) {
  const at = run.size ? " at step " + count(run.last) : "";
  const state = run.engine.state;
  if (state === "recorded") return "Recorded run";
  if (state in GONE) return GONE[state] + at;
  return lost ? "Connection to the kernel lost" + at : "";
}

// `views` are create functions. Gives back the end of it all.
export function mount({ model, el: host, title, views, withBar, kind = "" }) {
  const link = attach(model);
  const root = viewRoot(host, { label: title });
  hideTwin(model, root, el);
  const name = el("h3", { class: "y-title" }, title);
  const meta = el("span", { class: "y-meta" });
  const state = el("span", { class: "y-state", role: "status" });
  const tools = el("span", { class: "y-tools" });
  const head = el("header", { class: "y-head" }, name, meta, el("span", { class: "y-space" }), state, tools);
  const body = el("div", { class: "y-body " + kind });
  const ctx = createContext(link, root);
  let made = null;

  function build() {
    const bar = withBar ? ctx.add(replayBar(ctx)) : null;
    made = views.map(create => ctx.add(create(ctx)));
    if (bar) body.append(bar.node);
    for (const view of made) {
      body.append(view.node);
      if (view.head && views.length === 1) tools.append(view.head);
    }
    root.append(head, body);
  }

  function update() {
    if (!ctx.run) return;
    const engine = ctx.run.engine;
    setText(meta, made.length === 1 && made[0].meta ? made[0].meta() : engine.name);
    const line = stateLine(ctx.run, ctx.lost);
    setText(state, line);
    setAttr(root, "data-gone", line ? "" : null);
  }

  function start() {
    if (made || !ctx.run) return;
    build();
    ctx.add({ update });
    ctx.flush();
    waiting.remove();
  }

  const waiting = el("p", { class: "y-empty", role: "status" }, "Waiting for the kernel");
  root.append(waiting);
  const off = link.on(start);
  start();
  const blind = watchVisible(root, visible => link.see(root, visible));
  return () => {
    off();
    blind();
    link.see(root, false);
    ctx.destroy();
    root.remove();
  };
}

// One step view by itself.
export function solo({ view, ...rest }) {
  return mount({ ...rest, views: [view] });
}
