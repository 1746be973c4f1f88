"""What is wrong with how a page looks: text of too little contrast, and text that is cut off."""

from __future__ import annotations

from typing import Any

# Figures of text against what lies behind it; gradients count by their first colour, which is the one under a label.
_CONTRAST = """
(root) => {
  const pen = Object.assign(document.createElement("canvas"), { width: 1, height: 1 })
    .getContext("2d", { willReadFrequently: true });
  const known = new Map();
  const rgba = color => {
    if (!known.has(color)) {
      pen.clearRect(0, 0, 1, 1);
      pen.fillStyle = color;
      pen.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data;
      known.set(color, [r, g, b, a / 255]);
    }
    return known.get(color);
  };
  const over = (top, below) => [0, 1, 2].map(i => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);
  const first = style => {
    const found = /(?:rgba?|color)\\([^)]*\\)/.exec(style.backgroundImage);
    return found ? rgba(found[0]) : rgba(style.backgroundColor);
  };
  const ground = node => {
    const layers = [];
    for (let at = node; at; at = at.parentElement) {
      if (at !== node) layers.push(first(getComputedStyle(at, "::before")));
      layers.push(first(getComputedStyle(at)));
    }
    return layers.reduceRight((below, top) => over(top, below), [255, 255, 255, 1]);
  };
  const part = value => (value /= 255) <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  const weak = [];
  const walk = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const text = walk.currentNode.data.trim();
    const node = walk.currentNode.parentElement;
    if (!text || !node.checkVisibility({ visibilityProperty: true, opacityProperty: true })) continue;
    if (node.closest("option, style, [hidden]")) continue;
    const back = ground(node);
    const [a, b] = [light(over(rgba(getComputedStyle(node).color), back)), light(back)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) weak.push(node.className + " " + JSON.stringify(text.slice(0, 30)) + " " + ratio.toFixed(2));
  }
  return weak;
}
"""

_CUT = """
([root, free]) => {
  const cut = [];
  const walk = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || !node.checkVisibility({ visibilityProperty: true })) continue;
    if (node.closest("option, style, [hidden], " + free)) continue;
    const range = document.createRange();
    range.selectNodeContents(walk.currentNode);
    const box = range.getBoundingClientRect();
    for (let at = node; at && root.contains(at); at = at.parentElement) {
      const style = getComputedStyle(at);
      const edge = at.getBoundingClientRect();
      const clips = at === root || style.overflowX !== "visible";
      const scrolls = ["auto", "scroll"].includes(style.overflowY);
      const sideways = clips && (box.left < edge.left - 1 || box.right > edge.right + 1);
      const upright = clips && !scrolls && (box.top < edge.top - 2 || box.bottom > edge.bottom + 2);
      if (sideways || upright) {
        cut.push(node.className + " " + JSON.stringify(node.textContent.slice(0, 30)));
        break;
      }
      if (scrolls) break;
    }
  }
  if (root.scrollWidth > root.clientWidth + 1) cut.push("the view is wider than its place");
  return cut;
}
"""


def weak_text(page: Any, selector: str = ".yaie") -> list[str]:
    """Visible text with a contrast below 4.5."""
    return list(page.evaluate(f"selector => ({_CONTRAST})(document.querySelector(selector))", selector))


def cut_text(page: Any, free: str = "x-none", selector: str = ".yaie") -> list[str]:
    """Visible text that something cuts off. `free` selects what may be: texts of a model, which can be of any length."""
    return list(
        page.evaluate(
            f"([selector, free]) => ({_CUT})([document.querySelector(selector), free])",
            [selector, free],
        )
    )
