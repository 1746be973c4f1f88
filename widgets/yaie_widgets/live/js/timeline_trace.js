// Steps of a run as a Chrome trace, which ui.perfetto.dev and chrome://tracing open. Timestamps are microseconds since
// the first step began; a track for each phase of the engine and for each request, and counters.
import { visibleLine } from "./core_format.js";
import { LOST, requestOfLabel } from "./lives.js";
import { totalMs } from "./story.js";

const ENGINE = 1;
const REQUESTS = 2;
export const PHASES = ["schedule", "forward", "sample", "publish"];
const IDLE = ["waiting", ...LOST, "paused"];

// Nanoseconds at most: what is finer is noise.
const micros = value => Number(value.toFixed(3));

// Start and end of each step. No step begins before the one before ended: the wall clock may be set back, and its grain
// is not that of the phases.
function clockOf(columns) {
  const epoch = columns.length ? columns[0].time - totalMs(columns[0]) / 1000 : 0;
  const starts = [];
  const ends = [];
  for (const one of columns) {
    const before = ends.at(-1) ?? 0;
    const end = Math.max((one.time - epoch) * 1e6, before);
    starts.push(Math.max(end - totalMs(one) * 1000, before));
    ends.push(end);
  }
  // The time at which a column begins; past the last, at which that ends.
  const column = edge => (edge < starts.length ? starts[edge] : ends.at(-1));
  return { epoch, starts, ends, column };
}

export function chromeTrace(run, view) {
  const clock = clockOf(view.columns);
  const events = [];
  view.columns.forEach((one, column) => {
    events.push(...phaseSlices(one, clock.starts[column], clock.ends[column]));
    events.push(...counterEvents(view, one, clock.ends[column]));
  });
  view.rows.forEach((row, index) => events.push(...requestSlices(row, index + 1, clock, submittedAt(run, row))));
  events.sort((a, b) => a.ts - b.ts || (b.dur ?? 0) - (a.dur ?? 0));
  const begin = view.columns.length ? Math.trunc(clock.epoch * 1e6) : 0;
  return {
    traceEvents: [...trackNames(view), ...events],
    displayTimeUnit: "ms",
    otherData: { begin_unix_us: begin, newest_step: view.newest },
  };
}

// When an ended request was queued; for the others the end of the step before stands for it.
function submittedAt(run, row) {
  const facts = row.reason ? run.requests[row.label] ?? run.requests[requestOfLabel(row.label)] : null;
  return facts?.submitted_at ?? null;
}

function traceSlice(name, cat, pid, tid, start, length, args) {
  return { name, cat, ph: "X", ts: micros(start), dur: micros(Math.max(length, 0)), pid, tid, args };
}

// One slice for each phase, one after the other; squeezed where the wall clock leaves less time.
function phaseSlices(one, start, end) {
  const total = totalMs(one) * 1000;
  const scale = total ? Math.min(1, (end - start) / total) : 0;
  let at = start;
  return PHASES.map((phase, index) => {
    const args = { step: one.step, ms: one.ms[index] };
    if (phase === "forward") Object.assign(args, { prefill: one.prefill, decode: one.decode });
    const length = one.ms[index] * 1000 * scale;
    at += length;
    return traceSlice(phase, "engine", ENGINE, index + 1, at - length, length, args);
  });
}

function counterEvents(view, one, at) {
  const held = one.held + one.shared;
  const blocks = { held, cached: one.cached };
  if (view.numBlocks) blocks.free = view.numBlocks - held - one.cached;
  const event = { cat: "engine", ph: "C", ts: micros(at), pid: ENGINE, tid: 0 };
  return [
    { ...event, name: "tokens", args: { prefill: one.prefill, decode: one.decode } },
    { ...event, name: "blocks", args: blocks },
  ];
}

// A row's spans; work lasts from the start of its first step to the end of its last, and waiting until the next begins.
function requestSlices(row, track, clock, submitted) {
  const found = row.spans.map((span, number) => {
    let start = clock.starts[span.first];
    const end = IDLE.includes(span.kind) ? clock.column(span.last + 1) : clock.ends[span.last];
    if (span.kind === "waiting" && number === 0 && submitted !== null) {
      start = Math.min(Math.max((submitted - clock.epoch) * 1e6, 0), start);
    }
    const args = { request: visibleLine(row.label), tokens: span.tokens };
    if (span.cached) args.cached = span.cached;
    return traceSlice(span.kind, "request", REQUESTS, track, start, end - start, args);
  });
  if (row.end) {
    const edge = row.end.column;
    const ts = micros(edge ? clock.ends[edge - 1] : clock.starts[0]);
    const args = { output_tokens: row.output };
    found.push({ name: row.end.reason, cat: "request", ph: "i", ts, s: "t", args, pid: REQUESTS, tid: track });
  }
  return found;
}

function traceMeta(name, pid, tid, args) {
  return { name, ph: "M", ts: 0, pid, tid, args };
}

// Names and order of processes and tracks.
function trackNames(view) {
  const processes = [traceMeta("process_name", ENGINE, 0, { name: "engine" })];
  processes.push(traceMeta("process_name", REQUESTS, 0, { name: "requests" }));
  const tracks = PHASES.map((phase, index) => [ENGINE, index + 1, phase]);
  tracks.push(...view.rows.map((row, index) => [REQUESTS, index + 1, visibleLine(row.label)]));
  const names = tracks.map(([pid, tid, name]) => traceMeta("thread_name", pid, tid, { name }));
  const order = tracks.map(([pid, tid]) => traceMeta("thread_sort_index", pid, tid, { sort_index: tid }));
  return [...processes, ...names, ...order];
}
