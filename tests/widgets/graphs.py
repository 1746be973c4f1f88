"""Reading a drawing back: DOT through the renderer's own parser, SVG through an XML parser."""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any
from xml.etree import ElementTree

from yaie_widgets.render import find_renderer

ALLOWED_TAGS = {"svg", "style", "g", "path", "rect", "polygon", "polyline", "ellipse", "text", "title"}
_ACTIVE = re.compile(r"^(on|href|src|xlink|id|style$)", re.IGNORECASE)


def parse_dot(dot: str) -> dict[str, Any]:
    """Name, nodes and edges as Graphviz understands them."""
    program = find_renderer()
    assert program is not None
    done = subprocess.run([program, "-Kdot", "-Tdot_json"], input=dot.encode(), capture_output=True, check=True)
    parsed: dict[str, Any] = json.loads(done.stdout)
    return parsed


def node_tokens(dot: str) -> dict[str, int]:
    """The machine-readable token count of each node."""
    return {node["name"]: int(node["tokens"]) for node in parse_dot(dot).get("objects", ())}


def edges(dot: str) -> set[tuple[str, str]]:
    parsed = parse_dot(dot)
    names = {node["_gvid"]: node["name"] for node in parsed.get("objects", ())}
    return {(names[edge["tail"]], names[edge["head"]]) for edge in parsed.get("edges", ())}


def parse_svg(svg: str) -> ElementTree.Element:
    """The SVG as XML; fails when a tag or attribute is there that could act or load."""
    root = ElementTree.fromstring(svg)  # noqa: S314 -- our own drawing
    for element in root.iter():
        assert element.tag.rpartition("}")[2] in ALLOWED_TAGS, element.tag
        assert not [name for name in element.attrib if _ACTIVE.match(name)] or element is root, element.attrib
    return root


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in parse_svg(svg).iter() if element.tag.rpartition("}")[2] == "text"]


def titles(svg: str) -> list[str]:
    return [element.text or "" for element in parse_svg(svg).iter() if element.tag.rpartition("}")[2] == "title"]
