// The answers of an inspector: what the kernel says made into state, and what is said about one token.

import { DASH, count } from "./core_format.js";

const END = 14;
const EDGE = 4;
const FEW = 48;
const SMALL_GAP = 6;

// The reducer. `gap` asks for the whole: a piece of a growing answer is missing.
export function reduceAnswers(state, message) {
  if (message.kind === "whole") {
    const { answers, scales, colour } = message;
    return { answers, scales, colour, refused: "", gap: false };
  }
  if (!state) return state;
  if (message.kind === "refused") return { ...state, refused: message.text };
  if (message.kind === "answer") return replaced(state, message.number, message.answer);
  if (message.kind === "grown") {
    const before = state.answers[message.number];
    if (!before || before.output.length !== message.from) return { ...state, gap: true };
    return replaced(state, message.number, longer(before, message));
  }
  return state;
}

function replaced(state, number, answer) {
  const answers = [...state.answers];
  answers[number] = answer;
  return { ...state, answers, refused: "" };
}

function longer(before, message) {
  const { kind, number, from, seq, output, rows, vocab, ...words } = message;
  return {
    ...before,
    ...words,
    output: [...before.output, ...output],
    rows: before.rows && rows ? [...before.rows, ...rows] : before.rows,
    vocab: { ...before.vocab, ...vocab },
  };
}

export function endOf(answer) {
  return answer.prompt.length + answer.output.length;
}

export function tokenAt(answer, position) {
  const start = answer.prompt.length;
  return position < start ? answer.prompt[position] : answer.output[position - start];
}

export function rowAt(answer, position) {
  const start = answer.prompt.length;
  return (position < start ? answer.prompt_rows?.[position] : answer.rows?.[position - start]) ?? null;
}

// [id, logprob, rank] of the token that stands there, where that is known.
export function chosenAt(answer, position) {
  const id = tokenAt(answer, position);
  return rowAt(answer, position)?.[2].find(one => one[0] === id) ?? null;
}

export function runsOf(answer, id) {
  return answer.vocab[id]?.[0] ?? ["", String(id)];
}

export function wordsOf(answer, id) {
  return runsOf(answer, id).join("");
}

export function probability(candidate) {
  return candidate[1] === null ? 0 : Math.exp(candidate[1]);
}

function forkOf(answer) {
  return answer.origin ? answer.prompt.length + answer.origin.position : -1;
}

export function sourceOf(answer, position) {
  if (position === forkOf(answer)) return "branch";
  if (position < answer.cached) return "cache";
  return position < answer.prompt.length ? "computed" : "sampled";
}

// What a token looks like: part of the prompt, step on the colour scale, special or not.
export function tokenLook(answer, position, scales, colour) {
  const found = [];
  if (position < answer.prompt.length) found.push(position < answer.cached ? "hit" : "cmp");
  const row = rowAt(answer, position);
  const chosen = chosenAt(answer, position);
  if (row && chosen) found.push("l" + levelOf(row, chosen, scales, colour));
  if (answer.vocab[tokenAt(answer, position)]?.[1]) found.push("spc");
  return found;
}

function levelOf(row, chosen, scales, colour) {
  const limits = scales[colour].limits;
  if (colour === "entropy") return limits.filter(limit => row[0] >= limit).length;
  return limits.filter(limit => probability(chosen) < limit).length;
}

// [first, last + 1] of the parts of a long prompt that are shown at first: both ends, and where the cached part ends.
export function promptParts(length, cached) {
  if (length <= FEW) return length ? [[0, length]] : [];
  const wanted = [[0, END], [length - END, length]];
  if (cached > 0 && cached < length) wanted.push([Math.max(0, cached - EDGE), Math.min(length, cached + EDGE)]);
  wanted.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  const found = [];
  for (const [first, last] of wanted) {
    const before = found[found.length - 1];
    if (before && first - before[1] < SMALL_GAP) before[1] = Math.max(before[1], last);
    else found.push([first, last]);
  }
  return found;
}

// What stands in a flow of tokens, in order: tokens with the marks before them, and gaps.
export function flowItems(answer, parts, start, end) {
  const items = [];
  const fork = forkOf(answer);
  const size = answer.blocks?.size;
  let at = start;
  for (const [first, last] of [...parts, [end, end]]) {
    if (first > at) items.push({ gap: first - at });
    for (let position = first; position < last; position++) {
      const block = size && position % size === 0 ? position / size : null;
      items.push({ at: position, block, fork: position === fork });
    }
    at = last;
  }
  return items;
}

export function percent(share) {
  return share < 0.0005 ? "< 0.1 %" : (share * 100).toFixed(1) + " %";
}

function signed(value) {
  if (value === null) return DASH;
  const shown = Math.abs(value).toFixed(2);
  return value < 0 && Number(shown) > 0 ? "−" + shown : shown;
}

export function entropyWords(row) {
  const low = row[0].toFixed(2);
  if (row[1] === null) return "≥ " + low + " bits";
  const high = row[1].toFixed(2);
  return low === high ? low + " bits" : low + " to " + high + " bits";
}

export function blockWords(answer, position) {
  if (!answer.blocks) return DASH;
  if (!answer.running && position === endOf(answer) - 1 && position >= answer.prompt.length) return "none: never computed";
  const { size, table } = answer.blocks;
  const logical = Math.floor(position / size);
  const physical = logical < table.length ? " → " + count(table[logical]) : "";
  return count(logical) + physical + ", slot " + (position % size);
}

// Which token it is, its figures as [name, value] pairs, and the candidates at its place.
export function panelOf(answer, position) {
  const id = tokenAt(answer, position);
  const start = answer.prompt.length;
  const row = rowAt(answer, position);
  const chosen = chosenAt(answer, position);
  const figures = [["Token id", String(id)]];
  if (row && chosen) {
    figures.push(["Probability", percent(probability(chosen))], ["Log probability", signed(chosen[1])]);
    figures.push(["Rank", count(chosen[2])], ["Entropy", entropyWords(row)]);
  }
  figures.push(["Source", sourceOf(answer, position)], ["Position", count(position)]);
  figures.push(["Block", blockWords(answer, position)]);
  const place =
    position < start
      ? "prompt token " + count(position + 1) + " of " + count(start)
      : "token " + count(position - start + 1) + " of " + count(answer.output.length);
  return { id, place, figures, candidates: row ? row[2] : [] };
}

// The candidate to branch with when none is named: the most likely one that was not chosen.
export function bestOther(answer, position) {
  const id = tokenAt(answer, position);
  return position < answer.prompt.length ? null : (rowAt(answer, position)?.[2].find(one => one[0] !== id) ?? null);
}

// What a screen reader says of a token.
export function spoken(answer, position) {
  const parts = [wordsOf(answer, tokenAt(answer, position)).replace(/⏎/g, " new line ").replace(/·/g, " ").trim() || "space"];
  const chosen = chosenAt(answer, position);
  if (chosen) parts.push("probability " + percent(probability(chosen)), "rank " + count(chosen[2]));
  else parts.push("id " + tokenAt(answer, position));
  return parts.join(", ");
}
