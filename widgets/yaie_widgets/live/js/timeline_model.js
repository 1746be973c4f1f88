// The window that the timeline draws: columns for its steps, and a row for each request in order of arrival.
import { requestOfLabel, writtenAt } from "./lives.js";

const OVER = new Set(["finished", "cancelled", "failed"]);
const MOST_ROWS = 400;

// Steps `first` to `last` of a story, with at most `most` rows.
export function timelineView(run, story, first, last, most = MOST_ROWS) {
  const columns = story.figures.slice(story.upTo(first - 1), story.upTo(last));
  const newest = columns.length > 0 && columns.at(-1) === story.figures.at(-1);
  const start = columns[0]?.at ?? 0;
  const stop = start + columns.length - 1;
  const earlier = new Set();
  const later = new Set();
  const rows = [];
  for (const life of story.lives.all) {
    const ended = life.end && life.end.at < start;
    (ended ? earlier : later).add(requestOfLabel(life.label));
    if (ended || life.born > stop) continue;
    const row = rowOf(run, life, start, stop, newest);
    if (row.spans.length || row.end || isLive(run, life.label)) rows.push(row);
  }
  if (newest) rows.push(...queuedSince(run, story));
  return {
    columns,
    rows: cutRows(rows, most),
    hidden: Math.max(0, rows.length - most),
    finishedEarlier: [...earlier].filter(name => !later.has(name)).length + story.forgotten,
    newest: run.last,
    numBlocks: run.engine.num_blocks ?? 0,
    budget: run.engine.max_num_batched_tokens ?? null,
  };
}

function isLive(run, label) {
  const facts = run.requests[label];
  return Boolean(facts) && !OVER.has(facts.state);
}

// What was queued since the newest step waits, too.
function queuedSince(run, story) {
  const known = new Set(story.lives.all.map(life => life.label));
  const waiting = Object.keys(run.requests).filter(label => isLive(run, label) && !known.has(label));
  return waiting.map(label => ({ ...figuresOf(run, label, null), life: null, spans: [], end: null }));
}

function rowOf(run, life, start, stop, newest) {
  const inside = life.spans.filter(span => span.last >= start && span.first <= stop);
  const figures = figuresOf(run, life.label, life.cached);
  let end = null;
  if (life.end && life.end.at <= stop) {
    end = { column: life.end.at - start + (life.end.ran ? 1 : 0), reason: figures.reason ?? life.end.reason };
  } else if (newest && figures.reason) {
    // It ended after the newest step, and the next one will say so.
    end = { column: stop - start + 1, reason: figures.reason };
  }
  const state = figures.state ?? end?.reason ?? "finished";
  return { ...figures, state, life, spans: inside.map(span => clippedSpan(span, start, stop)), end };
}

function clippedSpan(span, start, stop) {
  const first = Math.max(span.first, start);
  const last = Math.min(span.last, stop);
  const tokens = span.each.slice(first - span.first, last - span.first + 1).reduce((sum, one) => sum + one, 0);
  return { kind: span.kind, first: first - start, last: last - start, tokens, cached: span.cached };
}

// What is known of a request. Figures that nothing remembers any more are null.
function figuresOf(run, label, hit) {
  const facts = run.requests[label];
  if (!facts) return { label, text: "", state: null, reason: null, prompt: null, cached: hit, output: null };
  const known = { label, text: facts.text, prompt: facts.num_prompt_tokens, output: facts.num_output_tokens };
  if (isLive(run, label)) return { ...known, state: facts.state, reason: null, cached: facts.num_cached_tokens ?? 0 };
  const reason = facts.finish_reason === "error" ? "failed" : facts.finish_reason ?? facts.state;
  const cached = requestOfLabel(label) === label ? facts.num_cached_tokens ?? 0 : hit;
  return { ...known, state: reason, reason, cached };
}

// Of too many, the ended ones that arrived first are left out before others.
function cutRows(rows, most) {
  if (rows.length <= most) return rows;
  const order = rows.map((row, index) => ({ index, over: row.end ? 1 : 0 }));
  order.sort((a, b) => a.over - b.over || b.index - a.index);
  const kept = order.slice(0, most).map(one => one.index);
  return kept.sort((a, b) => a - b).map(index => rows[index]);
}

// Output tokens of a row after the step that was read as number `at`; null before it arrived.
export function outputAt(row, at) {
  if (!row.life) return row.output;
  if (row.life.born > at) return null;
  const over = row.life.end && row.life.end.at <= at;
  return over && row.output !== null ? row.output : writtenAt(row.life, at);
}
