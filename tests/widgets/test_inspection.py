"""Answers under inspection: how tokens read, what top candidates say of the entropy, figures and words."""

from __future__ import annotations

import math
import random
import re

import pytest

from yaie_engine import Logprob
from yaie_widgets.inspection import Answer, Blocks, Origin, Reading, read_rows, read_tokens, twin_bundle
from yaie_widgets.inspection.answer import MINUS
from yaie_widgets.inspection.excerpt import output_parts, prompt_parts
from yaie_widgets.inspection.panel import panel_of
from yaie_widgets.inspection.reading import LONGEST
from yaie_widgets.inspection.scale import level_of_entropy, level_of_probability


class Words:
    """A vocabulary by hand."""

    special_ids = frozenset({9})

    def __init__(self, *tokens: bytes | None) -> None:
        self.tokens = tokens

    def token_bytes(self, token_id: int) -> bytes | None:
        return self.tokens[token_id] if token_id < len(self.tokens) else b"<eos>"


@pytest.mark.parametrize(
    ("raw", "runs"),
    [
        (b" flash", ("", "·", "flash")),
        (b"a b", ("a", "·", "b")),
        (b"\n\n", ("", "⏎⏎")),
        ("é東".encode(), ("é東",)),
        ("·".encode(), ("·",)),
        (b"\xe6\x9d", ("", "\u2039e6 9d\u203a")),
        (b"x\xf0\x9f y", ("x", "\u2039f0 9f\u203a·", "y")),
        ("\u200b".encode(), ("", "\u2039U+200B\u203a")),
        (b"", ("", "\u2039no text\u203a")),
        (None, ("", "\u2039no text\u203a")),
    ],
)
def test_how_a_token_reads(raw: bytes | None, runs: tuple[str, ...]) -> None:
    assert read_tokens([0], Words(raw))[0] == Reading(runs)


def test_special_tokens_are_marked_and_long_ones_cut() -> None:
    found = read_tokens([0, 9], Words(b"x" * 500))
    assert found[9] == Reading(("<eos>",), special=True)
    assert found[0].text == "x" * LONGEST + "…"


def test_without_a_vocabulary_the_recorded_texts_stand_in() -> None:
    found = read_tokens([1, 2], None, {1: " a"})
    assert found[1].runs == ("", "·", "a") and found[2].text == "\u20392\u203a"


def distribution(luck: random.Random, size: int) -> list[float]:
    weights = sorted((luck.random() ** luck.choice((1, 4, 16)) + 1e-12 for _ in range(size)), reverse=True)
    return [weight / sum(weights) for weight in weights]


@pytest.mark.parametrize("top", [0, 1, 2, 5, 20])
@pytest.mark.parametrize("size", [2, 7, 300])
def test_the_entropy_lies_between_its_bounds(top: int, size: int) -> None:
    luck = random.Random(top * 1000 + size)
    for _ in range(200):
        shares = distribution(luck, size)
        chosen = luck.randrange(size)
        recorded = {i: Logprob(math.log(shares[i]), i + 1, "") for i in {chosen, *range(min(top, size))}}
        (row,) = read_rows([recorded], size) or (None,)
        entropy = -sum(share * math.log2(share) for share in shares)
        assert row is not None and row.high is not None
        assert row.low - 0.002 <= entropy <= row.high + 0.002
        if top >= size:
            assert row.low == row.high
        (unsized,) = read_rows([recorded], None) or (None,)
        assert unsized is not None and unsized.low == pytest.approx(row.low, abs=0.002)
        assert unsized.high in (None, unsized.low)


def test_the_lower_bound_of_a_flat_distribution_is_no_trivial_one() -> None:
    flat = {i: Logprob(math.log(0.01), i + 1, "") for i in range(5)}
    (row,) = read_rows([flat], 100) or (None,)
    assert row is not None and row.low == pytest.approx(math.log2(100), abs=0.01) == row.high


def answer(**facts: object) -> Answer:
    """Four prompt tokens, of which two were cached, and three of output."""
    rows = [
        {4: Logprob(math.log(0.95), 1, ""), 5: Logprob(math.log(0.04), 2, "")},
        {4: Logprob(math.log(0.60), 1, ""), 5: Logprob(math.log(0.03), 7, "")},
        {6: Logprob(math.log(0.30), 1, ""), 4: Logprob(-math.inf, 2, "")},
    ]
    settings: dict[str, object] = {
        "name": "req-7",
        "prompt": (0, 1, 2, 3),
        "output": (4, 5, 6),
        "cached": 2,
        "rows": read_rows(rows, 100),
        "reason": "stop",
        "blocks": Blocks(4, (11,)),
        "readings": read_tokens(range(7), Words(b"You", b" are", b" here", b"\n", b"<b>", b" 7", b"\xe6")),
        **facts,
    }
    return Answer(**settings)  # type: ignore[arg-type]


def test_words_of_an_answer() -> None:
    found = answer()
    assert found.title == "Tokens of req-7" and found.counts == "4 prompt + 3 output · stop"
    mean = (math.log(0.95) + math.log(0.03) + math.log(0.30)) / 3
    assert found.stats == (
        f"mean log probability {MINUS}{-mean:.2f} · perplexity {math.exp(-mean):.2f} · least likely: “·7”, 3.0 %"
    )
    assert found.summary.startswith("3 tokens · stop · 2 of 4 prompt tokens cached · mean log probability")
    assert found.least_likely == 5


def test_an_answer_without_log_probabilities_says_what_to_do() -> None:
    found = answer(rows=None)
    assert found.stats == "Log probabilities were not recorded. Run with --logprobs 5."
    assert found.least_likely is None and panel_of(found, 4).bars == ()
    assert 'class="y-ins-tok l' not in twin_bundle([found])["text/html"]
    assert "y-ins-legend" not in twin_bundle([found])["text/html"].partition("</style>")[2]


def test_the_panel_of_a_token() -> None:
    panel = panel_of(answer(), 5)
    assert panel.place == "token 2 of 3"
    assert dict(panel.figures) == {
        "Token id": "5",
        "Probability": "3.0 %",
        "Log probability": f"{MINUS}3.51",
        "Rank": "7",
        "Entropy": dict(panel.figures)["Entropy"],
        "Source": "sampled",
        "Position": "5",
        "Block": "1, slot 1",
    }
    assert [(bar.token_id, bar.shown, bar.chosen) for bar in panel.bars] == [(4, "60.0 %", False), (5, "3.0 %", True)]


def test_where_tokens_came_from_and_lay() -> None:
    found = answer(origin=Origin(0, 1, 2, 6))
    assert [found.source(at) for at in range(7)] == ["cache"] * 2 + ["computed"] * 2 + ["sampled", "branch", "sampled"]
    blocks = [dict(panel_of(found, at).figures)["Block"] for at in (0, 3, 4, 6)]
    assert blocks == ["0 → 11, slot 0", "0 → 11, slot 3", "1, slot 0", "none: never computed"]
    assert found.reuse == "branch at token 2: 2 of 6 tokens cached"


def test_an_impossible_candidate_has_no_share() -> None:
    panel = panel_of(answer(), 6)
    assert [bar.shown for bar in panel.bars] == ["30.0 %", "< 0.1 %"]
    assert answer().to_dict()["rows"][2][2][1] == [4, None, 2]


def test_the_scales_have_five_steps() -> None:
    assert [level_of_probability(p) for p in (1, 0.9, 0.899, 0.5, 0.2, 0.05, 0.049, 0)] == [0, 0, 1, 1, 2, 3, 4, 4]
    assert [level_of_entropy(bits) for bits in (0, 0.49, 0.5, 1, 2.5, 3)] == [0, 0, 1, 2, 3, 4]


def test_a_long_prompt_shows_its_ends_and_where_the_cache_ends() -> None:
    assert prompt_parts(48, 10) == [(0, 48)] and prompt_parts(0, 0) == []
    assert prompt_parts(390, 208) == [(0, 14), (204, 212), (376, 390)]
    assert prompt_parts(390, 0) == [(0, 14), (376, 390)] == prompt_parts(390, 390)
    assert prompt_parts(100, 20) == [(0, 24), (86, 100)]
    assert output_parts(10_000) == [(0, 480), (9_980, 10_000)]


def test_the_static_form_has_all_figures_and_no_script() -> None:
    bundle = twin_bundle([answer()])
    body = bundle["text/html"].partition("</style>")[2]
    assert "<script" not in body and "&lt;b&gt;" in body and "<b>" in body
    assert 'class="y-ins-tok hit"' in body and 'class="y-ins-tok cmp"' in body and 'class="y-ins-tok l4"' in body
    assert "3.0 %" in body and "chosen" in body and "perplexity" in body and 'data-b="b1"' in body
    first, *lines = bundle["text/plain"].splitlines()
    assert first == f"Tokens of req-7 · {answer().summary}"
    assert lines[0].split()[:4] == ["token", "2", "of", "3"] and "3.0 %" in lines[0] and "<b> 60.0 %" in lines[0]


def test_a_long_output_is_cut_in_the_static_form() -> None:
    long = answer(output=(4, 5, 6) * 1000, rows=None)
    body = twin_bundle([long])["text/html"]
    assert len(re.findall('class="y-ins-tok[ "]', body)) == 4 + 500 and "… 2,500 more …" in body
    assert len(body) < 100_000
