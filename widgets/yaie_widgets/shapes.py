"""Shapes of a drawing that is made without Graphviz: each carries its role as a class and as a literal colour."""

from __future__ import annotations

from xml.etree import ElementTree

from .palette import LIGHT
from .safe_text import ELLIPSIS, columns, visible

SANS = "Helvetica, Arial, sans-serif"
# Ems of a wide interface font (DejaVu Sans); every other character takes 0.64 for each column of a terminal.
_EMS = {
    **dict.fromkeys("ilj.,:;|'", 0.34),
    **dict.fromkeys("tfr -/()", 0.41),
    **dict.fromkeys("ABCDEGHKNOQRUVXYZ", 0.76),
    **dict.fromkeys("mwMW%@—…", 1.0),
}
Element = ElementTree.Element


class Canvas:
    """Collects shapes in drawing order. Text may hold anything: it is made visible here, and escaped when written."""

    def __init__(self, width: float, label: str) -> None:
        self.width = width
        self.root = Element("svg", {"role": "img", "aria-label": visible(label), "font-family": SANS})

    def finish(self, height: float) -> Element:
        """The drawing, its height known now."""
        self.root.attrib.update(
            {"viewBox": f"0 0 {self.width:g} {height:g}", "width": f"{self.width:g}", "height": f"{height:g}"}
        )
        return self.root

    def rect(
        self, x: float, y: float, width: float, height: float, fill: str = "", stroke: str = "", title: str = ""
    ) -> None:
        """A rectangle in the colours of roles."""
        box = {"x": _number(x), "y": _number(y), "width": _number(width), "height": _number(height)}
        self._add("rect", box, fill, stroke, title)

    def path(self, d: str, fill: str = "", stroke: str = "", width: float = 1, dash: str = "", title: str = "") -> None:
        """A path."""
        more = {"stroke-dasharray": dash} if dash else {}
        more |= {"stroke-width": _number(width)} if width != 1 else {}
        self._add("path", {"d": d, **more}, fill, stroke, title)

    def disc(self, x: float, y: float, radius: float, fill: str, stroke: str = "") -> None:
        """A circle."""
        size = {"cx": _number(x), "cy": _number(y), "rx": _number(radius), "ry": _number(radius)}
        self._add("ellipse", size, fill, stroke)

    def cross(self, x: float, y: float, radius: float, role: str, title: str = "") -> None:
        """Two strokes that cross at a point."""
        a, b, c, d = (_number(value) for value in (x - radius, y - radius, x + radius, y + radius))
        self.path(f"M{a},{b}L{c},{d}M{a},{d}L{c},{b}", stroke=role, width=1.6, title=title)

    def text(
        self,
        x: float,
        y: float,
        content: str,
        size: int = 12,
        role: str = "ink",
        *,
        end: bool = False,
        bold: bool = False,
        title: str = "",
    ) -> None:
        """A line of text with its baseline at `y`; with `end`, it ends at `x`."""
        more = {"text-anchor": "end"} if end else {}
        more |= {"font-weight": "600"} if bold else {}
        place = {"x": _number(x), "y": _number(y), "font-size": str(size), **more}
        self._add("text", place, role, title=title).text = visible(content).replace("  ", "\u00a0 ")

    def centred(self, x: float, y: float, content: str, size: int, role: str) -> None:
        """A line of text around `x`."""
        place = {"x": _number(x), "y": _number(y), "font-size": str(size), "text-anchor": "middle"}
        self._add("text", place, role).text = visible(content)

    def hatch(self, x: float, y: float, width: float, height: float, role: str, title: str = "") -> None:
        """An outlined rectangle with strokes at 45 degrees (drawn, since a pattern needs an id on the page).

        They rise where something is lost, and fall where it is swapped: the two are told apart without colour too.
        """
        self.rect(x, y, width, height, "bg", role, title)
        strokes, at = [], x - height + _HATCH
        while at < x + width:
            left, right = max(at, x), min(at + height, x + width)
            if right > left:
                rises = (height - (left - at), height - (right - at))
                first, last = rises if role != "swapped" else (height - rises[0], height - rises[1])
                ends = (left, y + first, right, y + last)
                strokes.append("M{},{}L{},{}".format(*map(_number, ends)))
            at += _HATCH
        self.path("".join(strokes), stroke=role)

    def _add(self, tag: str, attributes: dict[str, str], fill: str = "", stroke: str = "", title: str = "") -> Element:
        colours = {"fill": LIGHT[fill] if fill else "none"}
        colours |= {"stroke": LIGHT[stroke]} if stroke else {}
        classes = " ".join(f"{letter}-{role}" for letter, role in (("f", fill), ("s", stroke)) if role)
        named = {"class": classes} if classes else {}
        element = ElementTree.SubElement(self.root, tag, {**attributes, **colours, **named})
        if title:
            ElementTree.SubElement(element, "title").text = visible(title)
        return element


_HATCH = 4.0


def fitted(content: str, size: int, width: float) -> str:
    """`content` on one line that fits `width` even in a wide interface font, cut at its end."""
    shown = visible(content[: int(width) + 8])
    if text_width(shown, size) <= width:
        return shown
    while shown and text_width(shown + ELLIPSIS, size) > width:
        shown = shown[:-1]
    return shown.rstrip() + ELLIPSIS if shown else ""


def text_width(content: str, size: int) -> float:
    """How wide a line is in a wide interface font."""
    return sum(_EMS.get(char, 0.64 * columns(char)) for char in content) * size


def _number(value: float) -> str:
    return f"{value:.6g}" if abs(value) >= 1e5 else f"{round(value, 2):g}"
