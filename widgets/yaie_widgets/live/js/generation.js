// The live view of what is being generated: one request in full, or many as rows.

import { attach } from "./core_link.js";
import { el, viewRoot, watchVisible } from "./core_dom.js";
import { generationMany } from "./generation_many.js";
import { generationOne } from "./generation_one.js";
import { ended, reduceGeneration } from "./generation_state.js";

const LOST = "Connection to the kernel lost";

export function generationLink(model) {
  return attach(model, reduceGeneration);
}

// Gives back the end of it.
export function showGeneration(model, host) {
  const link = generationLink(model);
  const root = viewRoot(host, { label: "Generation" });
  root.classList.add("y-gen");
  const waiting = el("p", { class: "y-empty", role: "status" }, "Waiting for the kernel");
  root.append(waiting);
  let view = null;
  let frame = 0;

  function draw() {
    frame = 0;
    const state = link.state;
    if (!state || (!state.stacked && !state.rows.length)) return;
    if (!view) {
      view = (state.stacked ? generationMany : generationOne)(link.send);
      root.replaceChildren(view.node);
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
    link.see(root, false);
    root.remove();
  };
}
