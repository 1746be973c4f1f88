// The life of each request over the recorded steps: waiting, prefill chunks, decode, preempted, swapped, paused. Steps
// are counted as they are read; a span covers `first` to `last` of them, with the tokens of each. "paused" means running
// without a token in the step.
import { isPutBack } from "./core_frame.js";

// How a request loses its blocks: for good, or to host blocks.
export const LOST = ["preempted", "swapped"];
const IDLE = ["waiting", ...LOST];

// The request of a label: choices after the first carry their index.
export function requestOfLabel(label) {
  const cut = label.lastIndexOf("/");
  return cut > 0 && /^\d+$/.test(label.slice(cut + 1)) ? label.slice(0, cut) : label;
}

// Who lost its blocks, and in which way: those that left to wait, and those that were admitted again in the same step.
export function lostIn(step) {
  const lost = new Map((step.preempted ?? []).map(label => [label, "preempted"]));
  for (const [label, state] of step.left ?? []) {
    if (isPutBack(state)) lost.set(label, state === "swapped" ? state : "preempted");
  }
  return lost;
}

function newLife(label, state, born) {
  return { label, state, born, spans: [], end: null, cached: null, admitted: state === "running", written: [] };
}

// How many entries of a sorted list are not after `value`.
export function countUpTo(entries, value, key) {
  let low = 0;
  let high = entries.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (key(entries[middle]) <= value) low = middle + 1;
    else high = middle;
  }
  return low;
}

// Output tokens after the step that was read as number `at`.
export function writtenAt(life, at) {
  const number = countUpTo(life.written, at, entry => entry[0]);
  return number ? life.written[number - 1][1] : 0;
}

function addSpan(life, kind, at, tokens, cached) {
  const last = life.spans.at(-1);
  if (last && last.kind === kind && kind !== "prefill" && last.last === at - 1) {
    last.last = at;
    last.each.push(tokens);
  } else {
    life.spans.push({ kind, first: at, last: at, each: [tokens], cached });
  }
}

const idleKind = state => (IDLE.includes(state) ? state : "paused");

// `base` is the frame before the oldest step.
export function createLives(run, base) {
  const all = [];
  const going = new Map();
  const queued = new Set(base.waiting);
  const running = new Set(base.tables.keys());

  const open = (label, state, born) => {
    const life = newLife(label, state, born);
    all.push(life);
    going.set(label, life);
    return life;
  };
  const lifeOf = (label, at) => going.get(label) ?? open(label, "running", at);
  const promptOf = label => run.requests[label]?.num_prompt_tokens ?? null;

  for (const label of running) open(label, "running", -1);
  for (const label of queued) open(label, "waiting", -1);
  for (const [label, table] of base.tables) compute(going.get(label), -1, table.num_computed, null);

  // Output tokens that a step added to a life: with the prompt computed, there is one token more than has its keys
  // and values. Where nothing remembers how long the prompt was, its decodes are counted.
  function compute(life, at, computed, work) {
    const prompt = promptOf(life.label);
    const last = life.written.at(-1)?.[1] ?? 0;
    const decoded = work?.[1] === "decode" ? work[2] : 0;
    const next = prompt === null ? last + decoded : Math.max(last, computed - prompt + 1);
    if (next === last) return 0;
    life.written.push([at, next]);
    return work ? decoded || 1 : 0;
  }

  // Prompt and cached tokens of a request that is admitted for the first time. Choices after the first take what the
  // first one computed, which is no hit of a prompt.
  function admit(label, hit, at) {
    const life = lifeOf(label, at);
    const prompt = promptOf(label);
    const counts = !life.admitted && prompt !== null && requestOfLabel(label) === label;
    queued.delete(label);
    Object.assign(life, { state: "running", admitted: true, cached: life.cached ?? hit });
    return counts ? { prompt, hit } : { prompt: 0, hit: 0 };
  }

  // One that stopped; gives 1 where its last token is on no table any more.
  function leave(label, state, at, ran) {
    running.delete(label);
    queued.delete(label);
    if (isPutBack(state)) {
      queued.add(label);
      return 0;
    }
    const life = lifeOf(label, at);
    const last = state === "finished" && ran ? 1 : 0;
    if (last) life.written.push([at, (life.written.at(-1)?.[1] ?? 0) + 1]);
    Object.assign(life, { state, end: { at, ran, reason: state } });
    going.delete(label);
    return last;
  }

  // Goes on by the step that is read as number `at`; gives its output tokens, and prompt and cached tokens of requests
  // that it admitted for the first time.
  function apply(step, at) {
    const found = { output: 0, prompt: 0, hit: 0 };
    const admitted = new Map(step.admitted ?? []);
    const batch = new Map(step.batch.map(entry => [entry[0], entry]));
    const gone = new Set((step.left ?? []).filter(([, state]) => !isPutBack(state)).map(([label]) => label));
    for (const label of step.arrived ?? []) {
      open(label, "waiting", at);
      queued.add(label);
    }
    for (const [label, state] of lostIn(step)) lifeOf(label, at).state = state;
    for (const [label, tokens] of admitted) {
      const { prompt, hit } = admit(label, tokens, at);
      found.prompt += prompt;
      found.hit += hit;
    }
    for (const [label, , , computed] of step.tables ?? []) {
      running.add(label);
      found.output += compute(lifeOf(label, at), at, computed, batch.get(label));
    }
    for (const life of going.values()) {
      const work = batch.get(life.label);
      if (work) addSpan(life, work[1], at, work[2], admitted.get(life.label) ?? 0);
      else if (!gone.has(life.label)) addSpan(life, idleKind(life.state), at, 0, 0);
    }
    for (const [label, state] of step.left ?? []) found.output += leave(label, state, at, batch.has(label));
    return found;
  }

  // Forgets lives that ended before the step number `at`; gives how many requests are gone with them.
  function forget(at) {
    const kept = all.filter(life => !life.end || life.end.at >= at);
    const names = new Set(kept.map(life => requestOfLabel(life.label)));
    const lost = new Set(all.map(life => requestOfLabel(life.label)).filter(name => !names.has(name)));
    all.splice(0, all.length, ...kept);
    return lost.size;
  }

  return {
    all,
    get running() {
      return running.size;
    },
    get queued() {
      return queued.size;
    },
    apply,
    forget,
  };
}
