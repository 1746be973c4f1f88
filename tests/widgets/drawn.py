"""Drawings on a page of a real browser: what ran there, and what of their text cannot be read."""

from __future__ import annotations

from typing import Any

THEMES = {
    "light": ('data-jp-theme-light="true"', ""),
    "dark": (
        'data-jp-theme-light="false"',
        ":root{--jp-layout-color0:#111;--jp-ui-font-color1:rgba(255,255,255,.87);--jp-border-color2:#424242}",
    ),
}
# Text that leaves the picture, or runs into the next text of its line.
MISPLACED = """() => {
  const wrong = [];
  for (const svg of document.querySelectorAll('svg')) {
    const width = svg.viewBox.baseVal.width, lines = new Map();
    for (const text of svg.querySelectorAll('text')) {
      const box = text.getBBox(), key = text.getAttribute('y');
      if (box.x < 0 || box.x + box.width > width) wrong.push('out: ' + text.textContent);
      if (!lines.has(key)) lines.set(key, []);
      if (box.width) lines.get(key).push([box.x, box.x + box.width, text.textContent]);
    }
    for (const line of lines.values()) {
      line.sort((a, b) => a[0] - b[0]);
      for (let i = 1; i < line.length; i++)
        if (line[i][0] < line[i - 1][1] - 0.5) wrong.push('over: ' + line[i - 1][2] + ' | ' + line[i][2]);
    }
  }
  return wrong;
}"""
# The smallest contrast of ink on the page's own ground; text on a block has its own colours.
CONTRAST = """() => {
  const light = ([r, g, b]) => {
    const linear = [r, g, b].map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const painted = (...colours) => {
    canvas.clearRect(0, 0, 1, 1);
    for (const colour of colours) { canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); }
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3).map(c => c / 255);
  };
  let smallest = 21;
  for (const text of document.querySelectorAll('div.yaie-drawing text')) {
    if (/f-on-/.test(text.getAttribute('class') || '')) continue;
    const ground = getComputedStyle(text.closest('div.yaie-drawing')).backgroundColor;
    const pair = [light(painted(ground)), light(painted(ground, getComputedStyle(text).fill))].sort((a, b) => b - a);
    smallest = Math.min(smallest, (pair[0] + 0.05) / (pair[1] + 0.05));
  }
  return smallest;
}"""


def page_of(browser: Any, theme: str, *pieces: str) -> tuple[Any, list[str]]:
    """A page with the pieces in it, and the list of everything in it that ran, failed or was requested."""
    page, events = browser.new_page(viewport={"width": 1100, "height": 700}), []
    page.on("dialog", lambda dialog: (events.append(f"dialog {dialog.message}"), dialog.dismiss()))
    page.on("pageerror", lambda error: events.append(f"error {error}"))
    page.on("request", lambda request: events.append(f"request {request.url}"))
    attribute, style = THEMES[theme]
    page.set_content(f"<!doctype html><style>{style}</style><body {attribute}>{'<p>'.join(pieces)}</body>")
    return page, events
