// Zoom and the trace, in the header of the timeline.
import { el, setAttr, setText } from "./core_dom.js";
import { count, counted } from "./core_format.js";
import { storyOf } from "./story.js";
import { timelineView } from "./timeline_model.js";
import { chromeTrace } from "./timeline_trace.js";

export function timelineTools(ctx, state, zoom) {
  const button = (words, label, click) =>
    el("button", { type: "button", class: "y-button", "aria-label": label, title: label, on: { click } }, words);
  const out = button("−", "Zoom out (-)", () => zoom(0.5, ctx.cursor));
  const fit = button("", "Show all steps (0)", () => zoom(0, ctx.cursor));
  const into = button("+", "Zoom in (+)", () => zoom(2, ctx.cursor));
  const saves = "Save all recorded steps as a Chrome trace, which ui.perfetto.dev opens";
  const save = button("Save trace", saves, saveTrace);
  fit.classList.add("y-tl-fit");
  const group = el("span", { class: "y-group", role: "group", "aria-label": "Zoom" }, out, fit, into);
  const node = el("span", { class: "y-tools" }, group, save);

  function saveTrace() {
    const { run } = ctx;
    const view = timelineView(run, storyOf(run), run.first, run.last, Infinity);
    const name = `yaie-trace-${run.engine.name.replace(/[^\w.-]+/g, "-")}-step-${run.last}.json`;
    download(name, JSON.stringify(chromeTrace(run, view)));
    state.said = "Trace of " + counted(view.columns.length, "step") + " saved. Open it at https://ui.perfetto.dev";
    ctx.changed();
  }

  function update(sight) {
    for (const each of [out, fit, into, save]) each.disabled = sight === null;
    const all = ctx.run.last - ctx.run.first + 1;
    const shown = sight ? sight.to - sight.from + 1 : 0;
    const whole = shown > 0 && shown === all;
    setText(fit, whole || !shown ? count(shown) : count(shown) + " of " + count(all));
    setAttr(fit, "data-unit", all === 1 ? " step" : " steps");
    setAttr(fit, "aria-pressed", whole ? "true" : "false");
  }

  return { node, update };
}

function download(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  el("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}
