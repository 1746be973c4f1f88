// The life of each request over the recorded steps: waiting, prefill chunks, decode, preempted, paused. Steps are
// counted as they are read; a span covers `first` to `last` of them, with the tokens of each. "paused" means running
// without a token in the step.

// The request of a label: choices after the first carry their index.
export function requestOfLabel(label) {
  const cut = label.lastIndexOf("/");
  return cut > 0 && /^\d+$/.test(label.slice(cut + 1)) ? label.slice(0, cut) : label;
}

// Who lost its blocks: those that left to wait, and those that were admitted again in the same step.
export function preemptedIn(step) {
  const left = (step.left ?? []).filter(([, state]) => state === "waiting").map(([label]) => label);
  return [...new Set([...(step.preempted ?? []), ...left])];
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
  const number = countUpTo(life.written, at, (entry) => entry[0]);
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

const idleKind = (state) => (state === "preempted" || state === "waiting" ? state : "paused");

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
  const life = (label, at) => going.get(label) ?? open(label, "running", at);
  const promptOf = (label) => run.requests[label]?.num_prompt_tokens ?? null;

  // Output tokens that a step added to a life: with the prompt computed, there is one token more than has its keys
  // and values. Where nothing remembers how long the prompt was, its decodes are counted.
  const compute = (one, at, computed, work) => {
    const prompt = promptOf(one.label);
    const last = one.written.at(-1)?.[1] ?? 0;
    const decoded = work?.[1] === "decode" ? work[2] : 0;
    const next = prompt === null ? last + decoded : Math.max(last, computed - prompt + 1);
    if (next === last) return 0;
    one.written.push([at, next]);
    return work ? decoded || 1 : 0;
  };

  for (const label of running) open(label, "running", -1);
  for (const label of queued) open(label, "waiting", -1);
  for (const [label, table] of base.tables) compute(going.get(label), -1, table.num_computed, null);

  return {
    all,
    get running() {
      return running.size;
    },
    get queued() {
      return queued.size;
    },
    // Go on by one step; gives its output tokens, and prompt and cached tokens of requests admitted for the first time.
    apply(step, at) {
      const found = { output: 0, prompt: 0, hit: 0 };
      for (const label of step.arrived ?? []) {
        open(label, "waiting", at);
        queued.add(label);
      }
      for (const label of preemptedIn(step)) life(label, at).state = "preempted";
      const admitted = new Map(step.admitted ?? []);
      for (const [label, hit] of admitted) {
        const one = life(label, at);
        const prompt = promptOf(label);
        queued.delete(label);
        one.state = "running";
        one.cached ??= hit;
        // Choices after the first take what the first one computed, which is no hit of a prompt.
        if (!one.admitted && prompt !== null && requestOfLabel(label) === label) {
          found.prompt += prompt;
          found.hit += hit;
        }
        one.admitted = true;
      }
      const batch = new Map(step.batch.map((entry) => [entry[0], entry]));
      for (const [label, , , computed] of step.tables ?? []) {
        running.add(label);
        found.output += compute(life(label, at), at, computed, batch.get(label));
      }
      const left = step.left ?? [];
      const gone = new Map(left.filter(([, state]) => state !== "waiting"));
      for (const one of going.values()) {
        const work = batch.get(one.label);
        if (work) addSpan(one, work[1], at, work[2], admitted.get(one.label) ?? 0);
        else if (!gone.has(one.label)) addSpan(one, idleKind(one.state), at, 0, 0);
      }
      for (const [label, state] of left) {
        running.delete(label);
        queued.delete(label);
        if (state === "waiting") {
          queued.add(label);
          continue;
        }
        const one = life(label, at);
        const ran = batch.has(label);
        if (state === "finished" && ran) {
          one.written.push([at, (one.written.at(-1)?.[1] ?? 0) + 1]);
          found.output += 1;
        }
        one.state = state;
        one.end = { at, ran, reason: state };
        going.delete(label);
      }
      return found;
    },
    // Forget lives that ended before the step number `at`; gives how many requests are gone with them.
    forget(at) {
      const kept = all.filter((one) => !one.end || one.end.at >= at);
      const names = new Set(kept.map((one) => requestOfLabel(one.label)));
      const lost = new Set(all.map((one) => requestOfLabel(one.label)).filter((name) => !names.has(name)));
      all.splice(0, all.length, ...kept);
      return lost.size;
    },
  };
}
