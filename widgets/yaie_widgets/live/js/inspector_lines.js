// Lines of tokens by their widths, so that only lines in sight have to exist.

// Appends to `lines` ([first, last + 1] places of items) from item `from` on. `widthOf(item)` is in pixels;
// `endsLine(item)` ends a line by itself. A line has one item at least.
export function layLines(lines, items, from, limit, widthOf, endsLine) {
  let first = from;
  let used = 0;
  for (let at = from; at < items.length; at++) {
    const width = widthOf(items[at]);
    if (at > first && used + width > limit) {
      lines.push([first, at]);
      first = at;
      used = 0;
    }
    used += width;
    if (endsLine(items[at]) && at + 1 < items.length) {
      lines.push([first, at + 1]);
      first = at + 1;
      used = 0;
    }
  }
  if (first < items.length) lines.push([first, items.length]);
  return lines;
}

// The lines that lie within `top` and `bottom`, and some before and after.
export function linesInSight(count, height, top, bottom, spare) {
  const first = Math.max(0, Math.floor(top / height) - spare);
  const last = Math.min(count, Math.ceil(bottom / height) + spare);
  return first < last ? [first, last] : [0, 0];
}

// The line that holds an item, by bisection.
export function lineOf(lines, place) {
  let low = 0;
  let high = lines.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (lines[middle][0] <= place) low = middle;
    else high = middle - 1;
  }
  return low;
}
