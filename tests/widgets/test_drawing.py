"""What a drawing shows in a notebook and writes to files."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from yaie_engine.errors import RequestError
from yaie_widgets import draw_block_table, draw_radix_tree
from yaie_widgets.palette import DARK, LIGHT, ROLE_OF

from .graphs import parse_svg
from .snapshots import busy_snapshot


def test_bundle_has_html_svg_and_text() -> None:
    drawing = draw_radix_tree(busy_snapshot())
    bundle = drawing._repr_mimebundle_()
    assert set(bundle) == {"text/html", "image/svg+xml", "text/plain"}
    assert bundle["text/plain"] == drawing.text == str(drawing)
    parse_svg(bundle["image/svg+xml"])
    html = bundle["text/html"]
    assert "max-width:100%" in html and "overflow:auto" in html
    assert "<title>node " in html
    assert " 0x" not in repr(drawing)


@pytest.mark.parametrize(
    ("form", "kinds"),
    [("dot", {"text/plain", "text/html"}), ("png", {"text/plain", "image/png"}), ("text", {"text/plain"})],
)
def test_format_chooses_what_is_shown(form: str, kinds: set[str]) -> None:
    bundle = draw_block_table(busy_snapshot(), format=form)._repr_mimebundle_()
    assert set(bundle) == kinds
    if form == "png":
        assert base64.b64decode(bundle["image/png"]).startswith(b"\x89PNG")
    if form == "dot":
        assert bundle["text/plain"].startswith("digraph block_table")


@pytest.mark.parametrize("name", ["a.dot", "a.gv", "a.svg", "a.png", "a.txt", "A.SVG"])
def test_save_by_suffix(name: str, tmp_path: Path) -> None:
    drawing = draw_radix_tree(busy_snapshot())
    saved = drawing.save(tmp_path / name)
    content = saved.read_bytes()
    expected = {".dot": drawing.dot, ".gv": drawing.dot, ".svg": drawing.svg, ".txt": drawing.text}
    suffix = saved.suffix.lower()
    assert content == (drawing.png if suffix == ".png" else expected[suffix].encode())


@pytest.mark.parametrize("name", ["a.pdf", "a"])
def test_save_names_the_suffixes(name: str, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"use \.dot, \.svg, \.png or \.txt"):
        draw_radix_tree(busy_snapshot()).save(tmp_path / name)


def test_static_mode_changes_nothing_in_a_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    live = draw_radix_tree(busy_snapshot())._repr_mimebundle_()
    monkeypatch.setenv("YAIE_NOTEBOOK", "static")
    assert draw_radix_tree(busy_snapshot())._repr_mimebundle_() == live


def test_every_colour_of_a_picture_has_a_role() -> None:
    """A literal without a role would keep its light colour on a dark page."""
    for drawing in (draw_radix_tree(busy_snapshot(), request="r12", max_nodes=6), draw_block_table(busy_snapshot())):
        for element in parse_svg(drawing.svg).iter():
            for attribute in ("fill", "stroke"):
                value = element.get(attribute, "none")
                assert value in ("none", "transparent") or value in ROLE_OF, (element.tag, value)
            if element.tag.endswith("text"):
                assert any(name.startswith("f-") for name in (element.get("class") or "").split())


def luminance(colour: str) -> float:
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_case_19_contrast(colours: dict[str, str]) -> None:
    for text in ("ink", "ink2"):
        assert contrast(colours[text], colours["bg"]) >= 4.5
    for state in ("cached", "held", "shared"):
        assert contrast(colours[f"on-{state}"], colours[state]) >= 4.5
    for mark in ("cached", "held", "shared", "free", "edge", "prefill", "decode", "lost", "g1", "g2", "g3"):
        assert contrast(colours[mark], colours["bg"]) >= 3.0


def test_roles_have_one_literal_each() -> None:
    assert len(set(LIGHT.values())) == len(LIGHT)
    assert set(LIGHT) == set(DARK)


def test_save_where_nothing_can_be_saved_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "folder.txt").mkdir()
    for target in (tmp_path / "absent" / "tree.dot", tmp_path / "folder.txt"):
        with pytest.raises(RequestError, match=r"cannot save .*: (No such file|Is a directory)") as caught:
            draw_radix_tree(busy_snapshot()).save(target)
        assert "\n" not in str(caught.value)
