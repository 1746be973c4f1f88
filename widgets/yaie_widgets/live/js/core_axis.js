// The step axis that replay bar, timeline and dashboard have in common.

export const LEFT = 150;
export const RIGHT = 98;

// window: {from, to}, places on the axis, both included. The left edge of the column of `step`.
export function xOf(step, window, width) {
  return LEFT + (step - window.from) * columnWidth(window, width);
}

export function columnWidth(window, width) {
  return Math.max(1, width - LEFT - RIGHT) / Math.max(1, window.to - window.from + 1);
}

// The step whose column is at x, held inside the window.
export function stepAt(x, window, width) {
  const step = window.from + Math.floor((x - LEFT) / columnWidth(window, width));
  return Math.max(window.from, Math.min(window.to, step));
}

// The smallest and largest value of each of `columns` equal parts: [{min, max, from, to}] (places in `values`).
export function minmaxColumns(values, columns) {
  const wanted = Math.min(columns, values.length);
  const found = [];
  for (let i = 0; i < wanted; i++) {
    const from = Math.floor((i * values.length) / wanted);
    const to = Math.floor(((i + 1) * values.length) / wanted);
    let min = Infinity;
    let max = -Infinity;
    for (let k = from; k < to; k++) {
      const value = values[k];
      if (value === null || value === undefined) continue;
      if (value < min) min = value;
      if (value > max) max = value;
    }
    found.push({ min: min === Infinity ? null : min, max: max === -Infinity ? null : max, from, to: to - 1 });
  }
  return found;
}
