// What all views of a run tell of its steps, read once: figures of each step, the pool after it, lives of requests.
import { LOST, countUpTo, createLives, lostIn, requestOfLabel } from "./lives.js";
import { createPoolCounts } from "./pool_counts.js";

const STORIES = new WeakMap();

// The story of a run, up to its newest step.
export function storyOf(run) {
  // Steps that it has not read may have left the run already.
  if (!STORIES.has(run) || STORIES.get(run).next < run.first) STORIES.set(run, createStory(run));
  const story = STORIES.get(run);
  story.follow();
  return story;
}

function createStory(run) {
  const base = run.frameAt(run.first - 1);
  const pool = createPoolCounts(base);
  const lives = createLives(run, base);
  // Figures by step, oldest first. Those in `sums` count from the first step that the story has read.
  const figures = [];
  const sums = { prompt: 0, hit: 0 };
  let start = { ...sums };
  let next = run.first;
  let count = 0;
  let forgotten = 0;

  function read(step) {
    const { output, prompt, hit } = lives.apply(step, count);
    pool.apply(step);
    sums.prompt += prompt;
    sums.hit += hit;
    figures.push({
      at: count,
      step: step.step,
      time: step.at,
      running: lives.running,
      queued: lives.queued,
      prefill: step.prefill,
      decode: step.decode,
      shared: pool.counts.shared,
      held: pool.counts.held,
      cached: pool.counts.cached,
      sums: { ...sums },
      output,
      ms: step.ms,
      ...lostAs(step),
      evicted: step.evicted?.length ?? 0,
      copied: step.copied?.length ?? 0,
    });
    count += 1;
  }

  return {
    lives,
    figures,
    get next() {
      return next;
    },
    // Requests that the story has forgotten, because they ended before the oldest step.
    get forgotten() {
      return forgotten;
    },
    follow() {
      for (const step of run.steps(next, run.last)) read(step);
      next = run.last + 1;
      const old = countUpTo(figures, run.first - 1, one => one.step);
      if (!old) return;
      start = figures[old - 1].sums;
      figures.splice(0, old);
      forgotten += lives.forget(figures[0]?.at ?? count);
    },
    // Prompt tokens of admitted requests, and those of them from the cache, since the oldest step.
    prompt: one => one.sums.prompt - start.prompt,
    hit: one => one.sums.hit - start.hit,
    // How many figures there are up to a step.
    upTo: step => countUpTo(figures, step, one => one.step),
  };
}

// {preempted, swapped}: the labels of those that lost their blocks in these ways.
function lostAs(step) {
  const lost = [...lostIn(step)];
  return Object.fromEntries(LOST.map(way => [way, lost.filter(([, state]) => state === way).map(([label]) => label)]));
}

export const tokensOf = one => one.prefill + one.decode;
export const totalMs = one => one.ms.reduce((sum, ms) => sum + ms, 0);
export const rateOf = one => (totalMs(one) ? (1000 * one.output) / totalMs(one) : 0);

// Per cent of prompt tokens that came from the cache; null before the first request.
export const hitRate = (story, one) => (story.prompt(one) ? (100 * story.hit(one)) / story.prompt(one) : null);

// Totals over recorded steps, from the oldest on. Ended requests are those that finished, were cancelled or failed.
export function totalsOf(story, figures = story.figures) {
  const last = figures.at(-1);
  const end = last?.at ?? -1;
  const alive = new Map();
  for (const one of story.lives.all) {
    if (one.born > end) continue;
    const name = requestOfLabel(one.label);
    alive.set(name, alive.get(name) || !one.end || one.end.at > end);
  }
  const sum = value => figures.reduce((total, one) => total + value(one), 0);
  return {
    running: last?.running ?? story.lives.running,
    queued: last?.queued ?? story.lives.queued,
    ended: [...alive.values()].filter(one => !one).length,
    requests: alive.size,
    prompt: last ? story.prompt(last) : 0,
    output: sum(one => one.output),
    preemptions: sum(one => one.preempted.length + one.swapped.length),
    swaps: sum(one => one.swapped.length),
    evictions: sum(one => one.evicted),
    copies: sum(one => one.copied),
  };
}
