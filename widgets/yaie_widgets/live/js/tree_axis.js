// The common token axis of the tree's bars: depth of a prefix as a length.

import { clear, el } from "./core_dom.js";
import { count } from "./core_format.js";

const SHORTEST = 100;
const ROUND = [1, 1.5, 2, 3, 4, 6, 8, 10];

// Long enough for every request known and every node, rounded up; never shorter than before, so that bars stand still.
export function axisLength(run, model, before) {
  let end = Math.max(model.end, SHORTEST);
  for (const facts of Object.values(run.requests)) {
    end = Math.max(end, (facts.num_prompt_tokens ?? 0) + (facts.num_output_tokens ?? 0));
  }
  return Math.max(before, roundUp(end));
}

export function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return ROUND.find((step) => step * power >= value) * power;
}

// Four or five labelled ticks, the last one inside the axis.
export function axisTicks(length) {
  const power = 10 ** Math.floor(Math.log10(length / 4));
  const step = [1, 2, 2.5, 5, 10].find((one) => length / (one * power) <= 5) * power;
  const ticks = [];
  for (let at = 0; at < length - step / 2; at += step) ticks.push(at);
  return ticks;
}

export function paintTreeAxis(node, length) {
  if (node.dataset.length === String(length)) return;
  node.dataset.length = String(length);
  clear(node);
  const ticks = axisTicks(length);
  ticks.forEach((at, i) => {
    const words = count(at) + (i === ticks.length - 1 ? " tok" : "");
    node.append(el("i", { class: at ? "" : "first", style: { left: ((100 * at) / length).toFixed(3) + "%" } }, words));
  });
}
