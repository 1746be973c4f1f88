// A choice of one request, for views that can show what belongs to it.

import { clear, el, setText } from "./core_dom.js";
import { visibleLine } from "./core_format.js";

// Whether a label is the request itself or one of its further choices (`id/index`).
export function isChoiceOf(label, request) {
  return label === request || label.startsWith(request + "/");
}

// words says what the choice shows, such as "Path of request".
export function requestPick(ctx, words) {
  const change = () => pickRequest(ctx, select.value);
  const select = el("select", { class: "y-input y-pick", "aria-label": words, title: words, on: { change } });
  let shown = null;
  const update = () => {
    const labels = Object.keys(ctx.run.requests).reverse();
    const key = labels.join("\n");
    // A list that is open must not be replaced under the pointer.
    if (key !== shown && (shown === null || document.activeElement !== select)) {
      shown = key;
      fillPick(select, ctx, labels);
    }
    select.value = ctx.selection.request ?? "";
  };
  return { node: select, update };
}

function pickRequest(ctx, label) {
  ctx.select("request", label === "" ? null : label);
}

function fillPick(select, ctx, labels) {
  clear(select);
  select.append(pickOption("", "Request"));
  for (const label of labels) select.append(pickOption(label, label + "  " + promptHead(ctx.run.requestOf(label))));
}

function promptHead(facts) {
  return visibleLine(facts.text.slice(0, 40));
}

function pickOption(value, words) {
  const node = el("option", { value });
  setText(node, words);
  return node;
}
