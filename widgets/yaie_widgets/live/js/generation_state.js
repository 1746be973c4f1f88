// What the view knows of its requests: rows of words and figures that arrive formatted, and the text so far.

// The state after a message; a message of another kind changes nothing.
export function reduceGeneration(state, message) {
  if (message.kind === "whole") {
    const { title, stacked, total, tally, rows, final } = message;
    return { title, stacked, total, tally, rows: [...rows], final, epoch: (state ? state.epoch : 0) + 1 };
  }
  if (message.kind === "rows" && state) {
    const rows = [...state.rows];
    for (const [index, fields, added] of message.rows) {
      const before = rows[index] ?? { text: "" };
      rows[index] = { ...before, ...fields, text: before.text + added };
    }
    return { ...state, rows, tally: message.tally, total: message.total };
  }
  return state;
}

export const ENDED = ["finished", "cancelled", "failed"];
export const ended = (row) => ENDED.includes(row.state);

// Failed rows first, then running, waiting and ended ones; equal ones stay in their order.
const RANKS = { failed: 0, prefill: 1, decode: 1, preempted: 2, swapped: 2, waiting: 2, cancelled: 3, finished: 3 };
export function runningFirst(rows) {
  return rows.map((row, index) => index).sort((a, b) => RANKS[rows[a].state] - RANKS[rows[b].state] || a - b);
}

// The line that is being written, or was written last.
export function lastLine(text) {
  const end = text.trimEnd();
  return end.slice(end.lastIndexOf("\n") + 1);
}
