// Tokens in lines, as a list box with one tab stop. Lines are made when they come into sight.

import { clear, el, setAttr } from "./core_dom.js";
import { count } from "./core_format.js";
import { flowItems, runsOf, spoken, tokenAt, tokenLook, wordsOf } from "./inspector_answer.js";
import { lineOf, layLines, linesInSight } from "./inspector_lines.js";

const SPARE = 6;
const PLAIN = 33;
const WITH_IDS = 45;
let serial = 0;

// Whether an answer is another one with tokens added at its end: their lines stay.
function sameStart(before, after) {
  return before.running && after.running && before.name === after.name && before.cached === after.cached;
}

// The pieces of a token: plain text, and marks in a lighter tone.
export function runNodes(runs) {
  return runs.map((run, place) => (run === "" ? null : place % 2 ? el("i", {}, run) : run));
}

// `ctx`: {scroller, scales, colour, ids, ticks, shown(), hover(at or null), select(at, clicked), key(event), expand()}.
export function createFlow(ctx, label) {
  const name = "y-ins-" + ++serial + "-";
  const node = el("div", { class: "y-ins-toks y-ins-flow", role: "listbox", tabindex: 0, "aria-label": label });
  const made = new Map();
  const widths = new Map();
  let answer = null;
  let items = [];
  let lines = [];
  let width = 0;
  let look = "";
  let shown = null;
  const pencil = document.createElement("canvas").getContext("2d");

  const height = () => (ctx.ids ? WITH_IDS : PLAIN);
  const special = id => Boolean(answer.vocab[id]?.[1]);

  function textWidth(id) {
    const key = id + (ctx.ids ? "i" : "");
    if (!widths.has(key)) {
      const family = getComputedStyle(node).fontFamily;
      pencil.font = (special(id) ? "11px " : "12.5px ") + family;
      let found = pencil.measureText(wordsOf(answer, id)).width + (special(id) ? 11 : 3);
      if (ctx.ids) {
        pencil.font = "9.5px " + family;
        found = Math.max(found, pencil.measureText(String(id)).width + 6);
      }
      widths.set(key, found);
    }
    return widths.get(key);
  }

  function widthOf(item) {
    if ("gap" in item) return 110;
    return textWidth(tokenAt(answer, item.at)) + (item.block !== null && ctx.ticks ? 5 : 0) + (item.fork ? 8 : 0);
  }

  function endsLine(item) {
    return "at" in item && runsOf(answer, tokenAt(answer, item.at)).some((run, place) => place % 2 && run.includes("⏎"));
  }

  // New items; those of an answer that only grew keep their lines.
  function update(next, parts, start, end) {
    const key = [ctx.colour, ctx.ids, ctx.ticks, parts.length, parts[0]].join();
    const room = Math.floor(node.clientWidth) - 2;
    const kept = answer && sameStart(answer, next) && key === look && room === width ? lines.length : 0;
    answer = next;
    items = flowItems(answer, parts, start, end);
    if (kept) {
      const [last] = lines.pop();
      drop(lines.length);
      layLines(lines, items, last, room, widthOf, endsLine);
    } else {
      clear(node);
      made.clear();
      lines = room > 0 ? layLines([], items, 0, room, widthOf, endsLine) : [];
    }
    width = room;
    look = key;
    node.style.height = lines.length * height() + "px";
    draw();
  }

  function drop(line) {
    made.get(line)?.remove();
    made.delete(line);
  }

  function draw() {
    const top = ctx.scroller.scrollTop - node.offsetTop;
    const [first, last] = linesInSight(lines.length, height(), top, top + ctx.scroller.clientHeight, SPARE);
    for (const line of [...made.keys()]) if (line < first || line >= last) drop(line);
    for (let line = first; line < last; line++) {
      if (made.has(line)) continue;
      const row = el("div", { class: "y-ins-line", role: "presentation", style: { top: line * height() + "px" } });
      row.append(...items.slice(...lines[line]).flatMap(itemNodes));
      made.set(line, row);
      node.append(row);
    }
    mark();
  }

  function itemNodes(item) {
    if ("gap" in item) {
      const words = "… " + count(item.gap) + " more …";
      return [el("button", { class: "y-ins-gap", type: "button", tabindex: -1, title: "Show all" }, words)];
    }
    const id = tokenAt(answer, item.at);
    const nodes = [];
    if (item.block !== null && ctx.ticks) {
      const physical = answer.blocks.table[item.block];
      const title = "Block " + item.block + (physical === undefined ? "" : ", physical block " + physical);
      nodes.push(el("span", { class: "y-ins-tick", title, "aria-hidden": "true", dataset: { b: "b" + item.block } }));
    }
    if (item.fork) nodes.push(el("span", { class: "y-ins-tick fork", "aria-hidden": "true", dataset: { b: "branch" } }));
    const attrs = {
      class: ["y-ins-tok", ...tokenLook(answer, item.at, ctx.scales, ctx.colour)].join(" "),
      role: "option",
      id: name + item.at,
      "aria-selected": "false",
      "aria-label": spoken(answer, item.at),
      dataset: { at: item.at, id },
      style: ctx.ids ? { "min-width": textWidth(id) - 1 + "px" } : null,
    };
    return [...nodes, el("span", attrs, runNodes(runsOf(answer, id)))];
  }

  // The token that the panel shows has the ring.
  function mark() {
    const at = ctx.shown();
    if (shown !== null && shown !== at) ring(shown, false);
    shown = at;
    setAttr(node, "aria-activedescendant", at !== null && ring(at, true) ? name + at : null);
  }

  function ring(at, on) {
    const found = node.querySelector('[data-at="' + at + '"]');
    if (found) {
      found.classList.toggle("sel", on);
      found.setAttribute("aria-selected", String(on));
    }
    return Boolean(found);
  }

  // The place among the items of a position; -1 where it is in a gap or in another flow.
  function placeOf(at) {
    return items.findIndex(item => item.at === at);
  }

  function reveal(at) {
    const place = placeOf(at);
    if (place < 0) return;
    const top = node.offsetTop + lineOf(lines, place) * height();
    const { scrollTop, clientHeight } = ctx.scroller;
    if (top < scrollTop) ctx.scroller.scrollTop = top - 10;
    else if (top + height() > scrollTop + clientHeight) ctx.scroller.scrollTop = top + height() - clientHeight + 10;
    draw();
  }

  function leftOf(place) {
    let x = 0;
    for (let i = lines[lineOf(lines, place)][0]; i < place; i++) x += widthOf(items[i]);
    return x + widthOf(items[place]) / 2;
  }

  // The token under or above, nearest to where this one stands.
  function beside(place, step) {
    const line = lineOf(lines, place) + step;
    if (line < 0 || line >= lines.length) return place;
    const x = leftOf(place);
    const [first, last] = lines[line];
    let best = place;
    let least = Infinity;
    for (let i = first; i < last; i++) {
      const away = Math.abs(leftOf(i) - x);
      if (!("gap" in items[i]) && away < least) [best, least] = [i, away];
    }
    return best;
  }

  function onKey(event) {
    if (event.altKey || event.ctrlKey || event.metaKey || !items.length) return;
    const place = Math.max(0, placeOf(ctx.shown()));
    const page = Math.max(1, Math.floor(ctx.scroller.clientHeight / height()) - 1);
    let to = null;
    if (event.key === "ArrowRight") to = place + 1;
    else if (event.key === "ArrowLeft") to = place - 1;
    else if (event.key === "ArrowDown") to = beside(place, 1);
    else if (event.key === "ArrowUp") to = beside(place, -1);
    else if (event.key === "PageDown") to = beside(place, Math.min(page, lines.length - 1 - lineOf(lines, place)));
    else if (event.key === "PageUp") to = beside(place, -Math.min(page, lineOf(lines, place)));
    else if (event.key === "Home") to = 0;
    else if (event.key === "End") to = items.length - 1;
    else return ctx.key(event);
    event.preventDefault();
    to = Math.max(0, Math.min(items.length - 1, to));
    const into = "gap" in items[to];
    const at = into ? items[place].at + Math.sign(to - place) : items[to].at;
    if (into) ctx.expand();
    ctx.select(at, false);
    reveal(at);
  }

  const atOf = event => {
    const found = event.target.closest?.(".y-ins-tok");
    return found ? Number(found.dataset.at) : null;
  };
  // Between two tokens the first one stays: the panel does not flicker.
  node.addEventListener("mouseover", event => atOf(event) !== null && ctx.hover(atOf(event)));
  node.addEventListener("mouseleave", () => ctx.hover(null));
  node.addEventListener("click", event => {
    if (event.target.closest(".y-ins-gap")) return ctx.expand();
    const at = atOf(event);
    if (at !== null) ctx.select(at, true);
  });
  node.addEventListener("focus", () => {
    if (placeOf(ctx.shown()) < 0 && items.length) ctx.select(items.find(item => "at" in item)?.at ?? 0, false);
  });
  node.addEventListener("keydown", onKey);
  return { node, update, draw, mark, reveal };
}
