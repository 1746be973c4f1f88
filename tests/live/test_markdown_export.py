"""A notebook exported to Markdown: a text in it is a text there, too, and nothing in it is read as Markdown."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tests.live import generations
from tests.live.conftest import Recordings
from tests.live.test_hostile_export import Bundles, bundles
from tests.widgets.payloads import PAYLOADS
from tests.widgets.snapshots import Entry, make_snapshot
from yaie_magic.lab.result import KernelResult
from yaie_magic.lab.source import Header, KernelSource
from yaie_magic.render import live_bundle
from yaie_widgets import draw_block_table, draw_radix_tree
from yaie_widgets.explanation import Explanation, Row
from yaie_widgets.insights import Figure, Finding, Insights, Span
from yaie_widgets.live.generation_twin import generation_html, stacked_html
from yaie_widgets.live.twin import twin_bundle
from yaie_widgets.safe_text import escape_text

ROOT = Path(__file__).parents[2]
MARKDOWN = (
    "First\n\n![x](http://evil.example/p.png) **bold** [click](javascript:alert(1)) `code`\n \n# Heading\n\n\n    block"
    "\n\r\n\r\n- item\n\n> quote\r\r<http://evil.example>\n\t\n| a |\n|---|\n| b |\n\n"
)
# What Markdown would make of it; none of our own forms has any of these.
MADE = {"img", "strong", "em", "a", "code", "h1", "h2", "ul", "li", "p", "blockquote", "hr"}


class _Made(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)


@pytest.fixture(scope="module")
def markdown_payloads() -> Iterator[None]:
    """Markdown in the place of every payload."""
    kept = PAYLOADS[:]
    PAYLOADS[:] = [f"{place}{MARKDOWN}" for place in range(len(kept))]
    yield
    PAYLOADS[:] = kept


def others() -> Bundles:
    """Static forms of what is no live view."""
    finding = Finding("x", "info", MARKDOWN, MARKDOWN, Span(1, 2, 1), (Figure(MARKDOWN, 1, MARKDOWN),), (MARKDOWN,))
    source = KernelSource("k", f"// a\n\n\n/*{MARKDOWN}*/\n\nint x;\n\n", (Header("h.cuh", MARKDOWN),), True, None)
    log = f"k.cu(1): error: {MARKDOWN}"
    result = KernelResult("k", "emulated", "sm_90", reason=MARKDOWN, log=log, text=MARKDOWN, fate=MARKDOWN)
    ended = [generations.ended(f"r{n}", MARKDOWN, MARKDOWN, "stop") for n in range(20)]
    snapshot = make_snapshot([Entry(("a",), f"r {MARKDOWN}", f"salt {MARKDOWN}")], total=40)
    drawings = draw_radix_tree(snapshot), draw_block_table(snapshot)
    texts = [
        {"text/plain": "", "text/html": html}
        for html in (generation_html(ended[0], MARKDOWN), stacked_html(MARKDOWN, ended, [MARKDOWN] * 20))
    ]
    return {
        "insights": [Insights((finding,), Span(1, 2, 1))._repr_mimebundle_()],
        "explanation": [Explanation("x", MARKDOWN, (Row(MARKDOWN, MARKDOWN, quote=True),))._repr_mimebundle_()],
        "kernel": [source._repr_mimebundle_(), result._repr_mimebundle_()],
        "texts": [*texts, live_bundle([MARKDOWN, MARKDOWN], MARKDOWN)],
        "text twins": [twin_bundle("k", {"text/plain": MARKDOWN}), twin_bundle("k", drawings[0]._repr_mimebundle_())],
        "drawings": [{"text/plain": "", "text/html": drawing.html} for drawing in drawings],
    }


@pytest.fixture(scope="module")
def published(markdown_payloads: None, recording: Recordings) -> Bundles:
    """Every static form, full of Markdown."""
    return {**bundles(recording), **others()}


def test_no_markup_of_ours_has_a_blank_line(published: Bundles) -> None:
    for name, each in published.items():
        assert all(data.get("text/html") for data in each)
        for data in each:
            assert data["text/html"].startswith("<div"), name
            blank = re.search(r"\n\s*\n|\r", data["text/html"])
            assert blank is None, (name, blank and data["text/html"][blank.start() - 150 : blank.end() + 150])


def test_an_exported_notebook_makes_nothing_of_a_text(published: Bundles) -> None:
    import nbformat  # its modules take seconds to read, and every process of the share reads this file

    html = [{"text/html": data["text/html"]} for each in published.values() for data in each]
    outputs = [nbformat.v4.new_output("display_data", data=data) for data in html]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1", outputs=outputs)])
    exporter: Any = importlib.import_module("nbconvert").MarkdownExporter()
    made, kept = _Made(), _Made()
    made.feed(importlib.import_module("mistune").create_markdown(escape=False)(exporter.from_notebook_node(book)[0]))
    for data in html:
        kept.feed(data["text/html"])
    of_markdown = [tag for tag in made.tags if tag in MADE]
    # The cell itself is code in a <pre>.
    assert of_markdown == ["code", *(tag for tag in kept.tags if tag in MADE)]
    assert len(made.tags) == len(kept.tags) + 2


def test_the_text_is_the_same_after_it() -> None:
    class Content(HTMLParser):
        content = ""

        def handle_data(self, data: str) -> None:
            self.content += data

    page = Content()
    page.feed(f"<pre>{escape_text(MARKDOWN)}</pre>")
    assert page.content == MARKDOWN


def test_markup_is_escaped_in_one_place() -> None:
    """Nobody has an escape of his own that could leave newlines."""
    for path in [*(ROOT / "widgets").rglob("*.py"), *(ROOT / "yaie_magic").rglob("*.py")]:
        if path.name != "safe_text.py":
            assert not re.search(r"\bhtml\.escape\(|from html import", path.read_text(encoding="utf-8")), path
