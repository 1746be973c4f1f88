// The frame around views: title, what it is of, and what became of its engine.

import { attach, hideTwin } from "./core_link.js";
import { createContext } from "./core_ctx.js";
import { el, setAttr, setText, viewRoot, watchVisible } from "./core_dom.js";
import { count } from "./core_format.js";
import { replayBar } from "./core_replaybar.js";

const GONE = {
  closed: "Engine unloaded",
  failed: "Engine failed",
  draining: "Engine shutting down",
  unreachable: "Server does not answer",
  unreadable: "Server's answer is not understood",
  restarted: "Server runs another engine now",
};

// What a header says of a source that gives nothing new; "" while it does.
export function stateLine(run, lost) {
  const at = run.size ? " at step " + count(run.last) : "";
  const state = run.engine.state;
  if (state === "recorded") return "Recorded run";
  if (lost) return "Connection to the kernel lost" + at;
  return state in GONE ? GONE[state] + at : "";
}

// The header line of a view: its title, what it is of, its controls.
function header(title, tag) {
  const meta = el("span", { class: "y-meta" });
  const tools = el("span", { class: "y-tools" });
  const state = el("span", { class: "y-state", role: "status" });
  const name = el(tag, { class: "y-title" }, title);
  return { node: el("header", { class: "y-head" }, name, meta, el("span", { class: "y-space" }), state, tools), meta, tools, state };
}

// `parts` are [{title, create}]; one alone has the header of the whole. Gives back the end of it all.
export function mount({ model, el: host, title, parts, withBar }) {
  const link = attach(model);
  const root = viewRoot(host, { label: title });
  hideTwin(model, root, el);
  const ctx = createContext(link, root);
  const head = header(title, "h3");
  const waiting = el("p", { class: "y-empty", role: "status" }, "Waiting for the kernel");
  let made = null;

  function build(part) {
    const view = ctx.add(part.create(ctx));
    const own = parts.length === 1 ? head : header(part.title, "h4");
    if (view.head) own.tools.append(view.head);
    const body = parts.length === 1 ? view.node : el("section", { class: "y-part", "aria-label": part.title }, own.node, view.node);
    return { view, body, meta: own.meta };
  }

  function start() {
    if (made || !ctx.run) return;
    const bar = withBar ? ctx.add(replayBar(ctx)) : null;
    made = parts.map(build);
    root.append(head.node, ...(bar ? [bar.node] : []), ...made.map(one => one.body));
    ctx.add({ update });
    ctx.flush();
    waiting.remove();
  }

  function update() {
    if (made.length !== 1) setText(head.meta, ctx.run.engine.name);
    for (const { view, meta } of made) setText(meta, view.meta ? view.meta() : "");
    const line = stateLine(ctx.run, ctx.lost);
    setText(head.state, line);
    setAttr(root, "data-gone", line ? "" : null);
  }

  root.append(waiting);
  const off = link.on(start);
  start();
  const blind = watchVisible(root, visible => link.see(root, visible));
  return () => {
    off();
    blind();
    link.leave(root);
    ctx.destroy();
    root.remove();
  };
}

// One step view by itself.
export function solo({ view, ...rest }) {
  return mount({ ...rest, parts: [{ create: view }] });
}
