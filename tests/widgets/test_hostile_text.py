"""Model text is hostile: sixty payloads come out as text everywhere and steer nothing."""

from __future__ import annotations

import re
import unicodedata
from html.parser import HTMLParser

import pytest

from yaie_widgets import draw_block_table, draw_radix_tree, explain_block, explain_node, explain_request
from yaie_widgets.safe_text import columns, excerpt, shorten, visible

from .graphs import node_tokens, parse_svg, texts, titles
from .payloads import PAYLOADS
from .snapshots import Entry, make_record, make_snapshot

ids = [f"{number:02}" for number in range(len(PAYLOADS))]
hostile = pytest.mark.parametrize("payload", PAYLOADS, ids=ids)
_HTML_TAGS = {"div", "pre", "style", "svg", "g", "path", "rect", "polygon", "polyline", "ellipse", "text", "title"}
_TABLE_TAGS = {"div", "style", "b", "table", "tr", "th", "td", "span"}


class _Tags(HTMLParser):
    """What a browser would find in a piece of HTML."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.content: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)

    def handle_data(self, data: str) -> None:
        self.content.append(data)


def read_html(html: str) -> _Tags:
    parser = _Tags()
    parser.feed(html)
    return parser


def assert_harmless(text: str) -> None:
    for char in text:
        assert char == "\n" or unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Zl", "Zp"), f"U+{ord(char):04X}"


@hostile
def test_tree_drawing(payload: str) -> None:
    entry = Entry((payload, "tail"), f"req {payload[:300]}", f"salt {payload[:300]}")
    snapshot = make_snapshot([entry, Entry((payload, "other"), "", f"salt {payload[:300]}")], total=20)
    drawing = draw_radix_tree(snapshot)
    assert set(node_tokens(drawing.dot)) == {f"n{node.id}" for node in snapshot.tree}
    shown = [text.replace("\u00a0", " ").strip() for text in texts(drawing.svg)]
    expected = excerpt(payload, 36).replace("\u00a0", " ").strip()
    assert expected in shown
    assert any(excerpt(payload, 400) in title for title in titles(drawing.svg))
    assert_harmless(drawing.text)
    found = read_html(drawing.html)
    assert found.tags <= _HTML_TAGS
    assert not [name for name in found.attributes if name.startswith("on") or name in ("href", "src", "srcdoc")]


@hostile
def test_block_drawing(payload: str) -> None:
    snapshot = make_snapshot([Entry((payload, "a"), payload[:500] or "x"), Entry((payload, "b"))], total=20)
    drawing = draw_block_table(snapshot)
    parse_svg(drawing.svg)
    assert len([title for title in titles(drawing.svg) if title.startswith("block ")]) == 20
    assert_harmless(drawing.text)
    assert read_html(drawing.html).tags <= _HTML_TAGS


@hostile
def test_explanations(payload: str) -> None:
    snapshot = make_snapshot([Entry((payload, "a"), payload[:500] or "x"), Entry((payload, "b"))], total=20)
    record = make_record(
        request_id=payload[:300],
        prompt=payload + payload,
        texts=(payload,),
        finish_reasons=("error",),
        error=payload[:500],
        matched=((1, 1),),
    )
    previous = make_record(request_id=payload[:300], prompt=payload + "other", prompt_token_ids=(3, 4, 9))
    explained = [
        explain_request(record, previous, snapshot, decode=lambda tokens: payload),
        explain_request(make_record(finish_reasons=("stop",), stop_reasons=(payload,)), None, snapshot),
        explain_block(snapshot, 0, decode=lambda tokens: payload),
        explain_node(snapshot, 1),
    ]
    for explanation in explained:
        assert_harmless(explanation.text)
        found = read_html(explanation._repr_mimebundle_()["text/html"])
        assert found.tags <= _TABLE_TAGS
        assert found.attributes <= {"class", "style", "scope"}
    assert excerpt(payload, 120) in "".join(read_html(explained[3]._repr_mimebundle_()["text/html"]).content)


@hostile
@pytest.mark.parametrize("limit", [1, 2, 8, 40])
def test_shortened_text_fits_and_keeps_both_ends(payload: str, limit: int) -> None:
    shown = shorten(payload, limit)
    assert columns(shown) <= limit
    assert_harmless(shown)
    if columns(visible(payload[:2000])) > limit >= 8:
        assert "…" in shown
        assert visible(payload).startswith(shown.split("…")[0])


def test_newlines_have_a_visible_mark() -> None:
    assert visible("a\nb\tc") == "a⏎b⇥c"


def test_edge_spaces_have_a_visible_mark() -> None:
    assert excerpt(" a b ", 20) == "·a b·"
    assert excerpt("   ", 20) == "···"
    assert excerpt("", 20) == "(no text)"


def test_visible_text_stays_as_it_is() -> None:
    for text in ("plain", "é ß 東京 שלום 🎉", "a\u0301", "`${x}` {y} %s"):
        assert visible(text) == text
        assert visible(visible(text)) == visible(text)


def test_escapes_of_labels_are_never_expanded() -> None:
    drawing = draw_radix_tree(make_snapshot([Entry(("\\N and \\G",))], total=20))
    assert "\\N and \\G" in texts(drawing.svg)
    assert not re.search(r"n1 and radix_tree", drawing.svg)
