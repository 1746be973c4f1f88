// Figures and texts as they are shown everywhere.

export const DASH = "—";

const known = value => value !== null && value !== undefined && !Number.isNaN(value);

// Made once: a formatter costs a hundred times what it does.
const FIGURES = new Intl.NumberFormat("en-US");

export function count(value) {
  return known(value) ? FIGURES.format(Math.round(value)).replace("-", "−") : DASH;
}

export function counted(value, noun, plural = noun + "s") {
  return count(value) + " " + (value === 1 ? noun : plural);
}

// Milliseconds below 10 s, seconds above. A time below 10 ms keeps two digits.
export function ms(value) {
  if (!known(value)) return DASH;
  if (value >= 10000) return (value / 1000).toFixed(1) + " s";
  return (value < 10 ? value.toFixed(2) : value < 100 ? value.toFixed(1) : count(value)) + " ms";
}

export function rate(value) {
  return known(value) && Number.isFinite(value) ? value.toFixed(1) + " tok/s" : DASH;
}

// A share of 1.
export function pct(value, digits = 1) {
  return known(value) && Number.isFinite(value) ? (value * 100).toFixed(digits) + " %" : DASH;
}

const MARKS = { "\n": "⏎", "\t": "⇥", "\r": "␍", "\u00a0": "⍽" };
// Control and format characters, among them those that turn the direction of a text.
const HIDDEN = /[\u0000-\u001f\u007f-\u00a0\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/gu;

// White space other than spaces and what cannot be seen, made visible.
export function visibleLine(text) {
  return text.replace(HIDDEN, mark);
}

function mark(char) {
  return MARKS[char] ?? "<" + char.codePointAt(0).toString(16).toUpperCase().padStart(4, "0") + ">";
}
