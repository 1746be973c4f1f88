// One recorded run: its steps, the frame after each of them, requests and vocabulary.

import { applyStep, copyFrame, frameOf, isPutBack } from "./core_frame.js";

const MOST_STEPS = 4096;
const CHECKPOINT = 32;
const RECENT = 6;
const UNKNOWN = {
  text: "", state: null, finish_reason: null, stop_reason: null, error: null, num_prompt_tokens: null,
  num_cached_tokens: null, num_output_tokens: null, submitted_at: null, queue_s: null, ttft_s: null, total_s: null,
};

export function createRun(recording) {
  const { base, engine, requests, vocab } = recording;
  const steps = [...recording.steps];
  // Frames by absolute place: place 0 is the first step this run ever had, whatever has been rolled up since.
  let dropped = 0;
  let ground = frameOf(base);
  const checkpoints = new Map();
  const recent = new Map();

  // The place in `steps` of the newest step not after `step`; -1 before the first.
  function placeOf(step) {
    let low = 0;
    let high = steps.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (steps[middle].step <= step) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  }

  function nearest(place) {
    let best = -1;
    let frame = ground;
    for (const known of [checkpoints, recent]) {
      for (const [at, value] of known) {
        if (at - dropped <= place && at - dropped > best) [best, frame] = [at - dropped, value];
      }
    }
    return [best, frame];
  }

  function frameAt(step) {
    const place = placeOf(step);
    if (place < 0) return ground;
    const known = recent.get(place + dropped);
    if (known) return known;
    let [at, frame] = nearest(place);
    if (at < place) {
      frame = copyFrame(frame);
      let fresh = new Set();
      while (at < place) {
        applyStep(frame, steps[++at], fresh);
        if ((at + dropped) % CHECKPOINT || checkpoints.has(at + dropped)) continue;
        checkpoints.set(at + dropped, copyFrame(frame));
        fresh = new Set();
      }
    }
    recent.set(place + dropped, frame);
    if (recent.size > RECENT) recent.delete(recent.keys().next().value);
    return frame;
  }

  // Everything a delta brings. Steps that are there already are passed over: a page may hear of one twice.
  function append(delta) {
    Object.assign(vocab, delta.vocab);
    for (const [label, facts] of Object.entries(delta.requests ?? {})) {
      requests[label] = { ...run.requestOf(label), ...facts };
    }
    Object.assign(engine, delta.engine);
    for (const step of delta.steps ?? []) {
      if (step.step > run.last) steps.push(step);
    }
    roll();
  }

  function roll() {
    const over = steps.length - MOST_STEPS;
    if (over <= 0) return;
    ground = copyFrame(frameAt(steps[over - 1].step));
    // Requests that ended in what is rolled up are forgotten, as they are in the kernel.
    for (const step of steps.splice(0, over)) {
      for (const [label, state] of step.left ?? []) if (!isPutBack(state)) delete requests[label];
    }
    dropped += over;
    for (const known of [checkpoints, recent]) {
      for (const at of known.keys()) if (at < dropped) known.delete(at);
    }
  }

  const run = {
    id: recording.run,
    engine,
    requests,
    vocab,
    get first() { return steps.length ? steps[0].step : ground.step; },
    get last() { return steps.length ? steps[steps.length - 1].step : ground.step; },
    get size() { return steps.length; },
    // The record of a step; null where none was recorded.
    step(number) {
      const found = steps[placeOf(number)];
      return found && found.step === number ? found : null;
    },
    // All steps from one number to another, both included.
    steps(from = -Infinity, to = Infinity) {
      return steps.slice(placeOf(from - 1) + 1, placeOf(to) + 1);
    },
    // The recorded step at or before a number (or the first one): where a cursor may stand.
    near(number) {
      return steps.length ? steps[Math.max(0, placeOf(number))].step : ground.step;
    },
    // The recorded step `by` places away.
    beside(number, by) {
      if (!steps.length) return ground.step;
      return steps[Math.max(0, Math.min(steps.length - 1, placeOf(number) + by))].step;
    },
    frameAt,
    append,
    requestOf(label) {
      return requests[label] ?? UNKNOWN;
    },
  };
  return run;
}

export function requestOf(run, label) {
  return run.requestOf(label);
}

// The text of tokens. Bytes that are no text by themselves are joined before they are decoded.
export function textOf(run, ids) {
  const parts = ids.map(id => run.vocab[id] ?? "");
  if (parts.every(part => typeof part === "string")) return parts.join("");
  const encoder = new TextEncoder();
  const bytes = parts.map(part => (typeof part === "string" ? encoder.encode(part) : Uint8Array.from(part)));
  const all = new Uint8Array(bytes.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of bytes) {
    all.set(part, at);
    at += part.length;
  }
  return new TextDecoder().decode(all);
}

// What each physical block holds after a step:
// {free, cached, held, shared, cells: [{id, state, holders, node, used, written}]}; the four counts add up to all.
export function blockStates(run, frame) {
  const { num_blocks, block_size } = run.engine;
  const cells = [];
  for (let id = 0; id < num_blocks; id++) {
    cells.push({ id, state: "free", holders: [], node: null, used: 0, written: false });
  }
  for (const node of frame.nodes.values()) {
    const first = Math.floor(node.start / block_size);
    const end = node.start + node.token_ids.length;
    node.blocks.forEach((id, k) => {
      const cell = cells[id];
      if (!cell) return;
      cell.state = "cached";
      cell.node = node.id;
      cell.used = Math.max(0, Math.min(block_size, end - (first + k) * block_size));
    });
  }
  for (const [label, table] of frame.tables) {
    table.blocks.forEach((id, k) => {
      const cell = cells[id];
      if (!cell) return;
      cell.holders.push(label);
      cell.state = cell.holders.length > 1 ? "shared" : "held";
      const used = Math.max(0, Math.min(block_size, table.num_computed - k * block_size));
      cell.used = Math.max(cell.used, used);
    });
  }
  markWritten(run, frame, cells);
  const counts = { free: 0, cached: 0, held: 0, shared: 0 };
  for (const cell of cells) counts[cell.state]++;
  return { ...counts, cells };
}

// A batch entry wrote the last `tokens` computed positions of its table.
function markWritten(run, frame, cells) {
  const step = run.step(frame.step);
  const { block_size } = run.engine;
  for (const [label, , tokens] of step?.batch ?? []) {
    const table = frame.tables.get(label);
    if (!table || !tokens) continue;
    const first = Math.max(0, Math.floor((table.num_computed - tokens) / block_size));
    const last = Math.floor((table.num_computed - 1) / block_size);
    for (const id of table.blocks.slice(first, last + 1)) if (cells[id]) cells[id].written = true;
  }
  for (const [, to] of step?.copied ?? []) if (cells[to]) cells[to].written = true;
}
