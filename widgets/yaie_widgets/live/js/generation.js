// The live view of what is being generated: one request in full, or many as rows.

import { attach, hideTwin } from "./core_link.js";
import { el, viewRoot, watchVisible } from "./core_dom.js";
import { keepForm } from "./generation_keep.js";
import { generationMany } from "./generation_many.js";
import { generationOne } from "./generation_one.js";
import { ended, reduceGeneration } from "./generation_state.js";

const LOST = "Connection to the kernel lost";
const UNKEPT = "Not kept in the notebook: show() of the result puts it there";

export function generationLink(model) {
  const link = attach(model, reduceGeneration);
  link.kept ??= kept(link, model);
  return link;
}

// Whether the notebook has the finished form, once it is due to the page to put it there.
async function kept(link, model) {
  const form = await new Promise(resolve => {
    const look = () => link.state?.final && resolve(link.state.final);
    link.on(look);
    look();
  });
  const done = await keepForm(model, form);
  if (done) link.send({ kind: "kept" });
  return done;
}

// Gives back the end of it.
export function showGeneration(model, host) {
  const link = generationLink(model);
  const root = viewRoot(host, { label: "Generation" });
  root.classList.add("y-gen");
  const waiting = el("p", { class: "y-empty", role: "status" }, "Waiting for the kernel");
  root.append(waiting);
  hideTwin(model, root, el);
  link.kept.then(done => done || root.append(el("p", { class: "y-empty", role: "status" }, UNKEPT)));
  let view = null;
  let frame = 0;

  function draw() {
    frame = 0;
    const state = link.state;
    if (!state || (!state.stacked && !state.rows.length)) return;
    if (!view) {
      view = (state.stacked ? generationMany : generationOne)(link.send);
      waiting.replaceWith(view.node);
    }
    root.classList.toggle("ended", link.lost || (state.rows.length > 0 && state.rows.every(ended)));
    view.update(state, link.lost ? LOST : "");
  }

  // One drawing for all messages of a frame. A page in the background gets no frames; it draws when it is seen.
  const later = () => (frame ||= requestAnimationFrame(draw));
  const off = link.on(later);
  draw();
  const blind = watchVisible(root, visible => link.see(root, visible));
  return () => {
    cancelAnimationFrame(frame);
    off();
    blind();
    link.leave(root);
    root.remove();
  };
}
