"""Graphviz's SVG made ours: themed by class, tooltips we wrote, nothing in it but shapes and text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

# The document comes from the renderer we started, with model text escaped on the way in.
from xml.etree import ElementTree

from .palette import ROLE_OF, file_style
from .render import RenderError
from .safe_text import visible

_SHAPES = frozenset({"svg", "g", "path", "polygon", "polyline", "ellipse", "text", "title"})
_KEPT = frozenset(
    {"class", "fill", "stroke", "stroke-width", "stroke-dasharray", "d", "points", "transform"}
) | frozenset({"x", "y", "cx", "cy", "rx", "ry", "text-anchor", "font-size", "font-weight", "viewBox"})
_LINK_TITLE = "{http://www.w3.org/1999/xlink}title"
_MIN_SCALE = 0.7
Element = ElementTree.Element


def themed(raw: bytes, tooltips: Mapping[str, str], label: str) -> Element:
    """The drawing as an element tree. `tooltips` are by DOT node name, or by the TITLE of a table cell."""
    try:
        root = ElementTree.fromstring(raw)  # noqa: S314
    except ElementTree.ParseError as error:
        raise RenderError(f"the renderer's SVG is not XML: {error}") from None
    drawing = _copy(root, tooltips)
    width, height = (float(number) for number in root.get("viewBox", "0 0 100 100").split()[2:])
    # Points become pixels one to one, so that a 12-point label is 12 px high as in every other view.
    drawing.attrib.update(width=f"{width:g}", height=f"{height:g}")
    drawing.attrib.update({"role": "img", "aria-label": visible(label), "class": "yaie-drawing"})
    return drawing


def standalone(drawing: Element) -> str:
    """A file of its own: it carries its style sheet and namespace."""
    attributes = {"xmlns": "http://www.w3.org/2000/svg", **drawing.attrib}
    whole = Element("svg", attributes)
    style = ElementTree.SubElement(whole, "style")
    style.text = file_style()
    whole.extend(drawing)
    return ElementTree.tostring(whole, encoding="unicode") + "\n"


def inline(drawing: Element) -> str:
    """For a page: shrinks with a narrow cell as far as it stays readable, then scrolls."""
    width = float(drawing.get("width", "100"))
    attributes = {**drawing.attrib, "style": f"max-width:100%;min-width:{width * _MIN_SCALE:.0f}px"}
    del attributes["class"], attributes["height"]
    whole = Element("svg", attributes)
    whole.extend(drawing)
    return ElementTree.tostring(whole, encoding="unicode")


def _copy(source: Element, tooltips: Mapping[str, str]) -> Element:
    tag = source.tag.rpartition("}")[2]
    if tag == "a":
        return _cell(source, tooltips)
    copied = Element(tag, {key: value for key, value in source.attrib.items() if key in _KEPT})
    _theme(copied, source.get("font-family", ""))
    copied.text = source.text if tag in ("text", "title") else None
    if tag == "text" and copied.text and ("  " in copied.text or "\u00a0" in copied.text):
        copied.text = copied.text.replace("  ", "\u00a0 ")
    copied.extend(_children(source, tooltips))
    return copied


def _cell(source: Element, tooltips: Mapping[str, str]) -> Element:
    """Graphviz writes a cell with a TITLE as a link; here it is a group with a tooltip."""
    group = Element("g")
    _add_title(group, tooltips.get(source.get(_LINK_TITLE, ""), ""))
    group.extend(_children(source, tooltips))
    return group


def _children(source: Element, tooltips: Mapping[str, str]) -> Iterator[Element]:
    kind = source.get("class", "").split(" ")[0]
    for child in source:
        tag = str(child.tag).rpartition("}")[2]
        if tag == "title" and kind in ("node", "edge"):
            group = Element("g")
            _add_title(group, tooltips.get(child.text or "", ""))
            yield from group
        elif tag in _SHAPES or tag == "a":
            yield _copy(child, tooltips)


def _add_title(group: Element, text: str) -> None:
    if text:
        title = ElementTree.SubElement(group, "title")
        title.text = "\n".join(visible(line) for line in text.split("\n"))


def _theme(element: Element, font: str) -> None:
    classes = element.get("class", "").split()
    for attribute, letter in (("fill", "f"), ("stroke", "s")):
        role = ROLE_OF.get(element.get(attribute, ""))
        if role is not None:
            classes.append(f"{letter}-{role}")
    if element.tag == "text":
        mono = font.startswith("Courier")
        element.set("font-family", "Menlo, Consolas, monospace" if mono else "Helvetica, Arial, sans-serif")
        classes += ["mono"] if mono else []
        if "fill" not in element.attrib:
            classes.append("f-ink")
    if classes:
        element.set("class", " ".join(classes))
