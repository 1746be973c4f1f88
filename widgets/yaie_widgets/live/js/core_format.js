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

const MARKS = { "\n": "⏎", "\t": "⇥", "\x7f": "␡" };
// What safe_text.py makes visible: control and format characters, among them those that turn the direction of a text,
// characters that print as nothing, and every combining mark of a letter after the third.
const HIDDEN = new RegExp(
  "[\\p{Cc}\\p{Cf}\\p{Cs}\\p{Zl}\\p{Zp}\\p{Noncharacter_Code_Point}" +
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0]|(?<=[\\p{Mn}\\p{Me}]{3})[\\p{Mn}\\p{Me}]",
  "gu",
);

// What cannot be seen, made visible.
export function visibleLine(text) {
  return text.replace(HIDDEN, mark);
}

function mark(char) {
  const code = char.codePointAt(0);
  if (code < 32) return MARKS[char] ?? String.fromCharCode(0x2400 + code);
  return MARKS[char] ?? "‹U+" + code.toString(16).toUpperCase().padStart(4, "0") + "›";
}
