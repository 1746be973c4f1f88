// Texts of tree nodes, decoded once, and the search in them.

import { textOf } from "./core_run.js";
import { visibleLine } from "./core_format.js";

const HEAD_TOKENS = 120;
const MOST_HEADS = 5000;
const MOST_HITS = 200;
const BEFORE_HIT = 16;

// A head is known by its tokens, which stay when the node grows behind them; a whole text by its list, which is never
// changed in place.
export function treeTexts() {
  const heads = new Map();
  const wholes = new WeakMap();
  const known = (cache, key, text) => {
    if (!cache.has(key)) cache.set(key, text());
    return cache.get(key);
  };
  return {
    // As much as a row can show.
    head(run, node) {
      const ids = node.ids.slice(0, HEAD_TOKENS);
      if (heads.size > MOST_HEADS) heads.clear();
      return known(heads, run.id + ":" + ids.join(), () => wholeText(run, ids));
    },
    whole: (run, node) => known(wholes, node.ids, () => wholeText(run, node.ids))
  };
}

// A character of which the tokens hold only a part, at either end, is cut off.
export function wholeText(run, ids) {
  return textOf(run, ids).replace(/^\ufffd+|\ufffd+$/g, "…");
}

// Ids of the nodes whose text contains the query, and how many there are beyond those given back.
export function findNodes(run, model, texts, query) {
  const wanted = literalPattern(query);
  const hits = new Set();
  let more = 0;
  for (const node of model.nodes.values()) {
    if (node.gone || !wanted.test(texts.whole(run, node))) continue;
    if (hits.size < MOST_HITS) hits.add(node.id);
    else more++;
  }
  return { hits, more };
}

// A text as [before, hit, after], cut so that the hit is in view; without a hit all of it is before.
export function aroundHit(text, query) {
  const at = query ? text.search(literalPattern(query)) : -1;
  if (at < 0) return [markEdges(text), "", ""];
  const from = at > 2 * BEFORE_HIT ? at - BEFORE_HIT : 0;
  const before = (from ? "…" : "") + visibleLine(text.slice(from, at));
  return [before, visibleLine(text.slice(at, at + query.length)), visibleLine(text.slice(at + query.length))];
}

// Any case; the rest of the query stands for itself.
function literalPattern(query) {
  return new RegExp(query.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "i");
}

// Spaces at the ends, where they could not be seen, as raised dots.
export function markEdges(text) {
  return visibleLine(text).replace(/^ +| +$/g, (spaces) => "·".repeat(spaces.length));
}
