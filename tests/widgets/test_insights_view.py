"""How findings show: the same figures in text, HTML and JSON; no times in static mode; hostile text stays text."""

from __future__ import annotations

import json
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from yaie_engine.tape import Frame, Tape
from yaie_widgets.insights import Figure, Finding, Insights, Span, find_insights
from yaie_widgets.insights.finding import unavailable

from .payloads import PAYLOADS
from .runs import HEAD, asked, config, insights, snapshot, step, taped
from .test_hostile_text import assert_harmless, read_html

STEPS = [step(n, ("a", "prefill", 15)) for n in (1, 2, 3, 4, 5)]
HISTORY = [asked("a", (*HEAD, 1, 2), 1, 2), asked("b", (*HEAD, 7, 8), 4, 5), asked("c", (5, 6), 5, 5, cached=1)]
TAGS = {"div", "style", "b", "span", "svg", "path", "circle"}
ATTRIBUTES = {"class", "role", "viewbox", "aria-hidden", "d", "fill", "cx", "cy", "r"}
STROKES = {"stroke-width", "stroke-dasharray"}


class _Words(HTMLParser):
    """The text of a page without its style sheets."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self._style = False

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._style = tag == "style"

    def handle_endtag(self, tag: str) -> None:
        self._style = False

    def handle_data(self, data: str) -> None:
        if not self._style:
            self.words.append(data)


def words_of(html: str) -> str:
    parser = _Words()
    parser.feed(html)
    return " ".join(" ".join(parser.words).split())


def html_of(found: Insights) -> str:
    return found._repr_mimebundle_()["text/html"]


@pytest.fixture
def found() -> Insights:
    return insights(HISTORY, STEPS)


def test_text_html_and_json_carry_the_same_figures(found: Insights) -> None:
    text, html, data = " ".join(found.text.split()), words_of(html_of(found)), found.to_list()
    assert [each["id"] for each in data] == [finding.id for finding in found.findings]
    for finding, plain in zip(found.findings, data, strict=True):
        assert finding.title in text and finding.title in html
        assert finding.statement in text and finding.statement in html
        for figure, each in zip(finding.evidence, plain["evidence"], strict=True):
            assert f"{figure.name} {figure.shown}" in text and f"{figure.name} {figure.shown}" in html
            assert each["value"] == pytest.approx(figure.value, abs=1e-6) and each["unit"] == figure.unit
        for pair in finding.pairs:
            assert pair.words in text and pair.words in html and pair.split.this in text and pair.split.this in html
        if finding.recommendation:
            assert f"→ {finding.recommendation}" in text and f"→ {finding.recommendation}" in html


def test_json_goes_there_and_back(found: Insights) -> None:
    data = found.to_list()
    assert json.loads(json.dumps(data)) == data
    keys = "id severity title statement evidence request_ids pairs confidence measured_over availability missing"
    for each in data:
        assert list(each) == [*keys.split(), "recommendation"]
        assert each["severity"] in ("high", "medium", "info") and each["confidence"] in ("measured", "inferred")
        assert (each["availability"] == "unavailable") == (each["missing"] is not None)
    assert any(each["measured_over"] == {"steps": [1, 5], "requests": 3} for each in data)


def test_most_severe_first_and_no_data_last() -> None:
    found = insights((), STEPS, settings=config(max_num_batched_tokens=3))
    order = [finding.mark for finding in found.findings]
    assert order == sorted(order, key=["high", "medium", "info", "no data"].index)
    assert order[0] == "medium" and order[-1] == "no data"
    assert "◆ medium" in found.text and "┄ no data" in found.text and "○ info" in found.text
    assert found.title.startswith("Insights · steps 1 to 5 · 1 request · ")


def test_static_mode_leaves_times_out(found: Insights, monkeypatch: pytest.MonkeyPatch) -> None:
    assert " ms" in found.text
    monkeypatch.setenv("YAIE_NOTEBOOK", "static")
    for shown in (found.text, html_of(found), json.dumps(found.to_list())):
        assert " ms" not in words_of(shown) and "first token" not in shown and "bound" not in shown
    slower = insights([replace(record, queue_s=9.0) for record in HISTORY], STEPS)
    assert slower.text == found.text and html_of(slower) == html_of(found)


def test_nothing_to_report() -> None:
    assert Insights((), Span(1, 60, 12)).text == "Nothing to report over steps 1 to 60."
    assert "Nothing to report over steps 1 to 60." in html_of(Insights((), Span(1, 60, 12)))
    assert "no step has been recorded" in Insights((), Span(None, None, 0)).text


def test_what_is_missing_is_said() -> None:
    lacking = unavailable("kernels", "Time inside kernels", "the reference backend has no kernel timers", Span(1, 2, 3))
    text = Insights((lacking,), Span(1, 2, 3)).text
    assert "┄ no data Time inside kernels" in text and "The reference backend has no kernel timers." in text
    assert "confidence" not in text and "1 no data" in text


def test_figures_in_the_one_notation() -> None:
    shown = [Figure("a", 1234, "tokens"), Figure("a", 1, "tokens"), Figure("a", 0.25, "s"), Figure("a", 12.34, "%")]
    assert [figure.shown for figure in shown] == ["1,234 tokens", "1 token", "250 ms", "12.3 %"]
    assert Figure("a", 3).shown == "3" and Figure("a", 1 / 3, "s").to_dict()["value"] == 0.333333


@pytest.mark.parametrize("payload", PAYLOADS)
def test_hostile_text(payload: str) -> None:
    first = replace(asked(f"r {payload[:60]}", (*HEAD, 1, 2), 1, 2), prompt="both" + payload)
    second = replace(asked("b", (*HEAD, 7, 8), 4, 5), prompt="both" + payload[::-1])
    tape = Tape(Frame(), tuple(taped(n) for n in range(1, 6)))
    found = find_insights(snapshot(STEPS), tape, [first, second], config(), decode=lambda ids: payload)
    assert any(finding.pairs for finding in found.findings)
    assert_harmless(found.text)
    page = read_html(html_of(found))
    assert page.tags <= TAGS and page.attributes <= ATTRIBUTES | STROKES
    json.loads(json.dumps(found.to_list()))
    finding = Finding("x", "info", payload, payload, Span(1, 2, 1), (Figure(payload, 1, payload),), (payload,))
    assert read_html(html_of(Insights((finding,), Span(1, 2, 1)))).tags <= TAGS
    assert_harmless(Insights((finding,), Span(1, 2, 1)).text)
