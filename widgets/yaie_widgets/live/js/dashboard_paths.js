// The strips of the dashboard as paths. Steps, never curves; nothing is smoothed.
import { LOST } from "./lives.js";

const FEWEST = 12;
export const STRIP_HIGH = 40;
const STRIP_GAP = 14;
const MARK_ROOM = 10;
const WIDE = 3;
const CUT = 4;

// Room for steps on the axis, which ends with the newest one; very few steps do not fill it.
export const slotsFor = steps => Math.max(FEWEST, steps);

// The baseline of a strip.
export const stripFloor = (place, first) => first + place * (STRIP_HIGH + STRIP_GAP) + STRIP_HIGH;

// Steps by the column that draws them: one each, or several where there are more steps than pixels.
export function groupedSteps(shown, slots, width) {
  const each = Math.max(1, Math.ceil(slots / width));
  const groups = [];
  for (let at = 0; at < shown.length; at += each) groups.push(shown.slice(at, at + each));
  return groups;
}

const n = value => value.toFixed(2);

// Bars of the step with the most in each column. Where it holds several steps `least` marks the least of them, and
// `cut` marks what is higher than the strip.
export function stackPaths(strip, groups, { left, column, floor, top, story }) {
  const gap = column > WIDE ? 1 : 0;
  const unit = top ? STRIP_HIGH / top : 0;
  const paths = strip.parts.map(() => "");
  const height = one => strip.parts.reduce((sum, part) => sum + part[3](one, story), 0);
  let least = "";
  let cut = "";
  groups.forEach((steps, place) => {
    const x = left + place * column + gap / 2;
    const tallest = steps.reduce((a, b) => (height(b) > height(a) ? b : a));
    let y = floor;
    strip.parts.forEach((part, at) => {
      const high = Math.min(part[3](tallest, story) * unit, STRIP_HIGH - (floor - y));
      if (high > 0) paths[at] += `M${n(x)} ${n(y)}v${n(-high)}h${n(column - gap)}v${n(high)}z`;
      y -= high;
    });
    if (steps.length > 1) least += `M${n(x)} ${n(floor - Math.min(...steps.map(height)) * unit)}h${n(column - gap)}`;
    if (height(tallest) > top) cut += `M${n(x)} ${n(floor - STRIP_HIGH + CUT)}h${n(column - gap)}`;
  });
  return { paths, least, cut };
}

// From least to most where a column holds several steps.
export function linePath(value, groups, { left, column, floor, top, story }) {
  const unit = top ? STRIP_HIGH / top : 0;
  let path = "";
  let cut = "";
  groups.forEach((steps, place) => {
    const values = steps.map(one => value(one, story));
    const x = n(left + place * column);
    const [low, high] = [Math.min(...values), Math.max(...values)].map(each => floor - Math.min(each, top) * unit);
    path += (path ? "L" : "M") + `${x} ${n(low)}`;
    if (steps.length > 1) path += `V${n(high)}V${n(low)}`;
    path += `h${n(column)}`;
    if (Math.max(...values) > top) cut += `M${x} ${n(floor - STRIP_HIGH + CUT)}h${n(column)}`;
  });
  return { path, cut };
}

// One mark for the steps that share its room: {x, from, to, preempted, swapped, evicted}.
export function eventMarks(shown, left, slot) {
  const room = Math.max(1, Math.ceil(MARK_ROOM / slot));
  const marks = [];
  for (let at = 0; at < shown.length; at += room) {
    const steps = shown.slice(at, at + room);
    const sum = value => steps.reduce((total, one) => total + value(one), 0);
    const [preempted, swapped] = LOST.map(way => sum(one => one[way].length));
    const evicted = sum(one => one.evicted);
    const x = left + (at + steps.length / 2) * slot;
    const [from, to] = [steps[0].step, steps.at(-1).step];
    if (preempted || swapped || evicted) marks.push({ x, from, to, preempted, swapped, evicted });
  }
  return marks;
}
