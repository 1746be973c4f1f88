"""`%yaie trace` and `%yaie cache list` in a notebook exported to HTML: names and texts of others are only text."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest

from tests.widgets.payloads import PAYLOADS
from yaie_engine.store.prefix_store import Entry
from yaie_engine.trace import Trace, TraceLine, Tracer, read_trace
from yaie_engine.trace_compare import compare_traces
from yaie_magic.subcommands.cache import table

FEW = [text for text in PAYLOADS if len(text) <= 300]


class Tags(HTMLParser):
    """The tags of a page, the attributes that are code or lead away, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.bad: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.bad += [name for name, _ in attrs if name.startswith("on") or name in ("href", "src", "srcdoc", "style")]

    def handle_data(self, data: str) -> None:
        self.text += data


def exported(value_text: str, printed: str) -> Tags:
    """A notebook with a value, as it represents itself, and a text on standard output, as HTML."""
    exporter = importlib.import_module("nbconvert").HTMLExporter
    value = nbformat.v4.new_output("execute_result", data={"text/plain": value_text}, execution_count=1)
    stream = nbformat.v4.new_output("stream", name="stdout", text=printed)
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("%yaie", outputs=[value, stream])])
    return Tags(exporter(template_name="basic").from_notebook_node(book)[0])


def trace(names: Sequence[str], largest: float = 1.0) -> Trace:
    lines = [TraceLine(1, 1, name, 1, (2, 3), name, largest, largest, largest, 0, 0.5, name) for name in names]
    return Trace(names[0], lines)


def cache_list(texts: Sequence[str], where: str) -> str:
    entries = [Entry((n, *range(16)), f"{'a' * 16}-{n:032x}.kv", 100, 0.0, 0.0) for n in range(len(texts))]
    prefixes = SimpleNamespace(entries=lambda wait=True: entries, where=where, beside="", trouble=where, limit=2**30)
    return table(SimpleNamespace(prefixes=prefixes, detokenize=lambda ids: texts[ids[0]]), entries)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def harmless() -> Tags:
    return exported(repr(trace(["a layer"])), cache_list(["a text"], "a folder"))


def check(told: str, harmless: Tags) -> None:
    page = exported(told, cache_list(["a text"], "a folder"))
    assert page.tags == harmless.tags and page.bad == harmless.bad
    assert "<script>alert(1)</script>" in page.text
    assert all(char.isprintable() or char == "\n" for char in told), [char for char in told if not char.isprintable()]


def test_names_in_a_trace_of_a_file_are_text_in_an_export(harmless: Tags, tmp_path: Path) -> None:
    left, right = (read_trace(trace(FEW, size).save(tmp_path / f"{size}.jsonl")) for size in (1.0, 2.0))
    for shown in (left, compare_traces(left, right)):
        check(repr(shown), harmless)


def test_the_name_of_a_model_in_a_trace_is_text_in_an_export(harmless: Tags) -> None:
    """A folder may be called anything, escape sequences of a terminal among it."""
    check("\n".join(repr(Tracer(f"{name}: float32 on cpu").trace) for name in FEW), harmless)


def test_texts_and_folders_in_a_list_of_prefixes_are_text_in_an_export(harmless: Tags) -> None:
    for where in FEW[::10]:
        told = cache_list(FEW, where)
        assert len(told.splitlines()) == 2 + len(FEW), "one line each"
        page = exported(repr(trace(["a layer"])), told)
        assert page.tags == harmless.tags and page.bad == harmless.bad
        assert page.text.count("<script>alert(1)</script>") >= 2
