// The bars of the timeline as one path for each role, whatever the number of rows.
import { columnWidth, xOf } from "./core_axis.js";

const GAP = 0.8;
const BAR_HEIGHT = { decode: "decode", preempted: "hatch", swapped: "hatch" };

// The two heights of the rows together, and the height of a row by how many there are, so that they fill one of them.
export const LOW = 240;
export const HIGH = 480;
const ROWS = [
  [12, 20], [15, 16], [20, 12], // LOW
  [24, 20], [30, 16], [60, 12], [80, 6], [120, 4], [160, 3], [200, 2.4], [Infinity, 2],
];

// Heights of a row and of its bars. Rows too low for a name have no marks, and their bars are lines.
export function timelineScale(rows) {
  const row = ROWS.find(([most]) => rows <= most)[1];
  if (row >= 16) return { row, chunk: 13, decode: 5, waiting: 4, hatch: 9, mark: 4 };
  if (row >= 12) return { row, chunk: 9, decode: 4, waiting: 3, hatch: 7, mark: 3 };
  return { row, flat: Math.max(2, 0.75 * row), mark: 0 };
}

const box = (x, y, width, height) =>
  `M${x.toFixed(1)} ${y.toFixed(1)}h${width.toFixed(1)}v${height}h${(-width).toFixed(1)}z`;

// {waiting, cached, prefill, decode, preempted, swapped, paused, stop, length, broken, unknown}: what to draw in each role.
export function timelinePaths(view, sight, width, scale) {
  const each = columnWidth(sight, width);
  const paths = { waiting: "", cached: "", prefill: "", decode: "", preempted: "", swapped: "", paused: "" };
  Object.assign(paths, { stop: "", length: "", broken: "", unknown: "" });
  const left = column => xOf(view.columns[column].step, sight, width);
  view.rows.forEach((row, index) => {
    const middle = (index + 0.5) * scale.row;
    for (const span of row.spans) {
      const x = left(span.first);
      const whole = left(span.last) + each - x;
      addBar(paths, span, x, Math.max(whole - (whole > 3 ? GAP : 0), 0.7), middle, scale);
    }
    if (row.end && scale.mark) addEnd(paths, row.end, view.columns, left, each, middle, scale.mark);
  });
  return paths;
}

function addBar(paths, span, x, width, middle, scale) {
  const { kind } = span;
  if (!scale.mark) addFlat(paths, span, x, width, middle, scale.flat);
  else if (kind === "prefill") addChunk(paths, span, x, width, middle - scale.chunk / 2, scale.chunk);
  else if (kind === "paused") paths.paused += box(x, middle - 0.5, width, 1);
  else if (kind === "waiting") {
    paths.waiting += box(x + 0.5, middle - scale.waiting / 2, Math.max(width - 1, 0.5), scale.waiting);
  } else {
    const height = scale[BAR_HEIGHT[kind]];
    paths[kind] += box(x, middle - height / 2, width, height);
  }
}

// No room for outlines: decode is lower than prefill, and what came from the cache lies on top. Of the low bars swapped
// lies high and paused low.
function addFlat(paths, span, x, width, middle, high) {
  const { kind } = span;
  const half = high / 2;
  if (kind === "prefill") {
    if (span.cached) paths.cached += box(x, middle - half, width, half);
    paths.prefill += box(x, span.cached ? middle : middle - half, width, span.cached ? half : high);
  } else if (kind === "decode") paths.decode += box(x, middle - half / 2, width, 0.75 * high);
  else if (kind === "preempted") paths.preempted += box(x, middle - half, width, high);
  else if (kind === "swapped") paths.swapped += box(x, middle - half, width, half);
  else paths.paused += box(x, middle, width, half);
}

// The cached tokens first, then the computed ones, in proportion but never too thin to see.
function addChunk(paths, span, x, width, y, height) {
  const share = span.cached / (span.cached + span.tokens);
  const cached = span.cached ? Math.min(Math.max(width * share, Math.min(3, width / 2)), width * 0.6) : 0;
  const gap = cached ? Math.min(0.6, width / 8) : 0;
  if (cached) paths.cached += box(x, y, cached, height);
  paths.prefill += box(x + cached + gap, y, width - cached - gap, height);
}

// A disc for stop, a square for length, a cross for cancelled or failed, a ring where nothing remembers why.
function addEnd(paths, end, columns, left, each, y, radius) {
  const x = (end.column ? left(end.column - 1) + each : left(0)) + radius + 1;
  if (end.reason === "length") paths.length += box(x - radius, y - radius, 2 * radius, 2 * radius);
  else if (end.reason === "stop") paths.stop += disc(x, y, radius);
  else if (end.reason === "cancelled" || end.reason === "failed") paths.broken += cross(x, y, radius);
  else paths.unknown += disc(x, y, radius - 0.5);
}

const disc = (x, y, r) => `M${(x - r).toFixed(1)} ${y}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0z`;
const cross = (x, y, r) => `M${(x - r).toFixed(1)} ${y - r}l${2 * r} ${2 * r}m${-2 * r} 0l${2 * r} ${-2 * r}`;
