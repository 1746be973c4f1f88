"""Graphviz's SVG made ours: themed by class, tooltips we wrote, small, and nothing in it but shapes and text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

# The document comes from the renderer we started, with model text escaped on the way in.
from xml.etree import ElementTree

from .palette import ROLE_OF, file_style
from .render import RenderError
from .safe_text import on_one_line, visible

_SHAPES = frozenset({"g", "path", "polygon", "polyline", "ellipse", "text", "title"})
_KEPT: tuple[str, ...] = ("fill", "stroke", "stroke-width", "stroke-dasharray", "d", "points", "transform")
_KEPT += ("x", "y", "cx", "cy", "rx", "ry", "text-anchor", "font-size", "font-weight")
_DEFAULTS = {"stroke": "none", "text-anchor": "start"}
_LINK_TITLE = "{http://www.w3.org/1999/xlink}title"
_SANS, _MONO = "Helvetica, Arial, sans-serif", "Menlo, Consolas, monospace"
_MIN_SCALE = 0.7
_RADIUS, _ROUNDED_FROM = 2, 12.0
Element = ElementTree.Element


def themed(raw: bytes, tooltips: Mapping[str, str], label: str) -> Element:
    """The drawing as an element tree. `tooltips` are by DOT node name, or by the TITLE of a table cell."""
    try:
        root = ElementTree.fromstring(raw)  # noqa: S314
    except ElementTree.ParseError as error:
        raise RenderError(f"the renderer's SVG is not XML: {error}") from None
    # Points become pixels one to one, so that a 12-point label is 12 px high as in every other view.
    width, height = (float(number) for number in root.get("viewBox", "0 0 100 100").split()[2:])
    drawing = Element("svg", {"viewBox": f"0 0 {width:g} {height:g}", "width": f"{width:g}", "height": f"{height:g}"})
    drawing.attrib.update({"role": "img", "aria-label": visible(label), "font-family": _SANS})
    drawing.extend(_children(root, tooltips))
    return drawing


def standalone(drawing: Element) -> str:
    """A file of its own: it carries its style sheet and namespace, and literal colours for viewers without styles."""
    whole = Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "class": "yaie-drawing", **drawing.attrib})
    style = ElementTree.SubElement(whole, "style")
    style.text = file_style()
    whole.extend(drawing)
    return ElementTree.tostring(whole, encoding="unicode") + "\n"


def inline(drawing: Element) -> str:
    """For a page: shrinks with a narrow cell as far as it stays readable, then scrolls.

    Where a page keeps an inline SVG it also keeps its style sheet, so literal colours are left out.
    """
    width = float(drawing.get("width", "100"))
    attributes = {**drawing.attrib, "style": f"max-width:100%;min-width:{width * _MIN_SCALE:.0f}px"}
    del attributes["height"]
    whole = Element("svg", attributes)
    whole.extend(_without_colours(child) for child in drawing)
    return on_one_line(ElementTree.tostring(whole, encoding="unicode"))


def _without_colours(source: Element) -> Element:
    kept = {key: v for key, v in source.attrib.items() if not (key in ("fill", "stroke") and v in ROLE_OF)}
    copied = Element(source.tag, kept)
    copied.text = source.text
    copied.extend(_without_colours(child) for child in source)
    return copied


def _children(source: Element, tooltips: Mapping[str, str]) -> Iterator[Element]:
    kind = source.get("class", "").split(" ")[0]
    for child in source:
        tag = str(child.tag).rpartition("}")[2]
        if tag == "title" and kind in ("node", "edge"):
            yield from _titles(tooltips.get(child.text or "", ""))
        elif tag == "a":
            # Graphviz writes a cell with a TITLE as a link; here it is a group with a tooltip.
            yield _group(child, _titles(tooltips.get(child.get(_LINK_TITLE, ""), "")), tooltips)
        elif tag == "g" and kind == "node" and len(child) == 1:
            yield from _children(child, tooltips)
        elif tag in _SHAPES:
            yield _shape(child, tag, tooltips)


def _titles(text: str) -> list[Element]:
    if not text:
        return []
    title = Element("title")
    title.text = "\n".join(visible(line) for line in text.split("\n"))
    return [title]


def _group(source: Element, titles: list[Element], tooltips: Mapping[str, str]) -> Element:
    group = Element("g")
    group.extend([*titles, *_children(source, tooltips)])
    return group


def _shape(source: Element, tag: str, tooltips: Mapping[str, str]) -> Element:
    kept = {key: source.get(key, "") for key in _KEPT if source.get(key, _DEFAULTS.get(key)) != _DEFAULTS.get(key)}
    box = _rectangle(kept.get("points", "")) if tag == "polygon" else None
    if box is not None:
        del kept["points"]
        tag, kept = "rect", {**box, **kept}
    copied = Element(tag, kept)
    if tag in ("text", "title"):
        copied.text = (source.text or "").replace("  ", "\u00a0 ")
    _theme(copied, source)
    copied.extend(_children(source, tooltips))
    return copied


def _rectangle(points: str) -> dict[str, str] | None:
    """The attributes of a rectangle, when the points of a polygon are one."""
    corners = [tuple(map(float, point.split(","))) for point in points.split()]
    xs, ys = sorted({corner[0] for corner in corners}), sorted({corner[1] for corner in corners})
    if len(corners) != 5 or len(xs) != 2 or len(ys) != 2:
        return None
    width, height = xs[1] - xs[0], ys[1] - ys[0]
    box = {"x": f"{xs[0]:g}", "y": f"{ys[0]:g}", "width": f"{width:.6g}", "height": f"{height:.6g}"}
    return {**box, "rx": str(_RADIUS)} if min(width, height) >= _ROUNDED_FROM else box


def _theme(element: Element, source: Element) -> None:
    classes = source.get("class", "").split()
    for attribute, letter in (("fill", "f"), ("stroke", "s")):
        role = ROLE_OF.get(element.get(attribute, ""))
        if role is not None:
            classes.append(f"{letter}-{role}")
    if element.tag == "text":
        element.set("font-size", f"{float(source.get('font-size', '12')):g}")
        if source.get("font-family", "").startswith("Courier"):
            element.set("font-family", _MONO)
            classes.append("mono")
        if "fill" not in element.attrib:
            classes.append("f-ink")
    if classes:
        element.set("class", " ".join(classes))
