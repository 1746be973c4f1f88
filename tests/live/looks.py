"""What a person would see at once in a view: text that is too faint, cut off, or written over other text."""

from __future__ import annotations

from typing import Any

# The text nodes of a view that are in sight, with their boxes.
_TEXTS = """
const texts = () => {
  const root = document.querySelector('.yaie'), found = [];
  const walk = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode, parent = node.parentElement;
    if (!node.data.trim() || parent.closest('style,title,.y-hidden,option')) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const box = range.getBoundingClientRect(), style = getComputedStyle(parent);
    if (!box.width || style.visibility === 'hidden') continue;
    found.push({ node, parent, box, style });
  }
  return found;
};
"""
CONTRAST = (
    "() => {"
    + _TEXTS
    + """
  const light = ([r, g, b]) => {
    const linear = [r, g, b].map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const painted = colours => {
    canvas.clearRect(0, 0, 1, 1);
    for (const colour of colours) { canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); }
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3).map(c => c / 255);
  };
  const faint = [];
  for (const { node, parent, style } of texts()) {
    // A mark that is drawn as a character is no text: it has the contrast of its colour.
    if (/^[■▬━┅]+$/.test(node.data.trim())) continue;
    const grounds = [];
    for (let at = parent; at; at = at.parentElement) {
      // What stands before the text fills its place, too; of a gradient the first colour lies below.
      const first = at === parent ? '' : getComputedStyle(at, '::before').backgroundImage;
      grounds.unshift(getComputedStyle(at).backgroundColor, ...(first.match(/(?:rgba?|color)\\([^)]*\\)/) ?? []));
    }
    const ink = parent.namespaceURI.endsWith('svg') ? style.fill : style.color;
    const pair = [light(painted(grounds)), light(painted([...grounds, ink]))].sort((a, b) => b - a);
    const ratio = (pair[0] + 0.05) / (pair[1] + 0.05);
    if (ratio < 4.5) faint.push(ratio.toFixed(2) + ': ' + node.data);
  }
  return faint;
}"""
)
CUT = (
    "() => {"
    + _TEXTS
    + """
  const root = document.querySelector('.yaie').getBoundingClientRect(), cut = [];
  for (const { node, parent, box } of texts()) {
    let right = root.right, left = root.left, free = false;
    for (let at = parent; at && !at.classList.contains('yaie'); at = at.parentElement) {
      const style = getComputedStyle(at);
      // An ellipsis says that there is more, and a scroll bar leads there.
      if (style.textOverflow === 'ellipsis' && style.overflowX === 'hidden') free = true;
      if (/auto|scroll/.test(style.overflowX) && at.scrollWidth > at.clientWidth) free = true;
    }
    if (!free && (box.right > right + 0.5 || box.left < left - 0.5)) cut.push(node.data);
  }
  return cut;
}"""
)
OVER = (
    "() => {"
    + _TEXTS
    + """
  const boxes = texts().map(({ node, parent, box }) => {
    let [left, right, top, bottom] = [box.left, box.right, box.top + 2, box.bottom - 2];
    for (let at = parent; at; at = at.parentElement) {
      const style = getComputedStyle(at), outer = at.getBoundingClientRect();
      if (style.overflowX !== 'visible' && at instanceof HTMLElement) {
        [left, right] = [Math.max(left, outer.left), Math.min(right, outer.right)];
        [top, bottom] = [Math.max(top, outer.top), Math.min(bottom, outer.bottom)];
      }
    }
    return { text: node.data, left, right, top, bottom };
  }).filter(one => one.right > one.left && one.bottom > one.top);
  const over = [];
  for (let i = 0; i < boxes.length; i++)
    for (let k = i + 1; k < boxes.length; k++) {
      const a = boxes[i], b = boxes[k];
      const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      // Words of one line need a gap to be told apart.
      if (wide > -2 && high > 0.5) over.push(a.text + ' | ' + b.text);
    }
  return over;
}"""
)


def check_looks(page: Any) -> None:
    """Readable, whole, and nothing on top of each other."""
    assert page.evaluate(CONTRAST) == []
    assert page.evaluate(CUT) == []
    assert page.evaluate(OVER) == []
    assert page.errors == []


def height(page: Any) -> float:
    """The height of the view."""
    found: float = page.evaluate("document.querySelector('.yaie').getBoundingClientRect().height")
    return found
