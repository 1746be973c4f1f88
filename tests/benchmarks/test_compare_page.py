"""Tables and plot of a comparison: medians, ratios, and what a reader must know."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from benchmarks.comparison import page, plot, summary
from benchmarks.comparison.report import table
from tests.benchmarks.comparisons import comparison, row
from yaie_magic.bench.trial import TPOT
from yaie_magic.bench.workloads import WORKLOADS


def test_without_a_run_nothing_is_claimed_and_the_command_is_there() -> None:
    text = page.render(None)
    assert text.count("| not measured |") == len(WORKLOADS) and f"    {page.COMMAND}\n" in text


def test_a_row_holds_medians_ranges_and_ratios_within_rounds() -> None:
    text = page.render(comparison())
    assert "| YAIE Magic | 5 (4 to 6) | 30 | 100 |  |  |" in text
    # Rounds: 4/16, 5/10, 6/12: not the ratio of the medians (5/12).
    assert "| transformers generate, padded batch | 12 (10 to 16) | 30 | 100 | 0.50 (0.25 to 0.50) |  |" in text


def test_losses_disturbance_and_failures_are_said() -> None:
    native = comparison()
    native["peers"]["llama.cpp"]["native"] = "yes"
    assert "1.20 (1.00 to 1.25), **slower** | disturbed: others took 30% |" in page.render(native)
    text = page.render(comparison())
    assert "| llama.cpp's server | 4 (4 to 5) | 30 | 100 |  | no native build, so no ratio; disturbed" in text
    assert "- not measured: transformers generate, static cache, torch.compile: it ran out of memory" in text
    assert "**not a native build** (no: it lacks AVX512): no claim is made against it" in text
    assert "- transformers continuous batching: not measured, transformers is not installed" in text


def test_more_is_better_where_the_figure_is_a_rate() -> None:
    made = comparison()
    made["workloads"][0]["name"] = "W2"
    mine, theirs, *_ = made["workloads"][0]["rows"]
    for each in theirs["repetitions"]:
        each["figures"]["output_tokens_per_s"] = 125.0
    lines = page.table(made["workloads"][0], made)
    assert any("| 0.80, **slower** |" in line for line in lines)
    assert summary.ours(made["workloads"][0]) is mine


def test_load_that_was_allowed_takes_every_claim_back() -> None:
    assert "**Other load was allowed: these figures prove nothing.**" in page.render(comparison(allow_load=True))


def test_agreement_is_told_request_by_request() -> None:
    found = {"peer": "generate", "workload": "W2", "equal": 30, "tied": 1, "different": 1, "widest": 0.5, "distinct": 9}
    text = page.render(comparison(agreement=[{**found, "problem": ""}, {**found, "problem": "it died"}]))
    assert "W2: 30 of 32 equal, 1 up to a near tie, **1 different** (by up to 0.5); 9 different tokens in ours" in text
    assert "W2: not compared: it died" in text


def test_the_best_peer_is_neither_ours_nor_a_yardstick() -> None:
    workload = comparison()["workloads"][0]
    workload["rows"].append(row("in place", [1.0, 1.0, 1.0]))
    best = summary.best(workload, TPOT)
    assert best is not None and best["peer"] == "llama.cpp"
    assert summary.best({"rows": []}, TPOT) is None


def test_the_terminal_shows_the_tables_of_the_page() -> None:
    text = table(comparison())
    assert "| YAIE Magic | 5 (4 to 6) |" in text and "![" not in text


def test_the_plot_has_a_bar_for_each_peer_with_figures() -> None:
    made = comparison()
    assert "0.83" not in plot.draw(made)  # no bar for a build that is not native
    made["peers"]["llama.cpp"]["native"] = "yes"
    root = ElementTree.fromstring(plot.draw(made))  # noqa: S314
    words = [element.text for element in root.iter() if element.tag.endswith("text")]
    assert "2.00" in words and "0.83" in words
    bars = [element for element in root.iter() if element.tag.endswith("rect")]
    assert len(bars) == 2 and ["f-cached" in bar.get("class", "") for bar in bars] == [True, False]


def test_a_plot_without_figures_says_so() -> None:
    made = comparison(workloads=[])
    assert "no peer has figures" in plot.draw(made)


@pytest.mark.parametrize(("value", "text"), [(12345.6, "12,346"), (0.1234, "0.123"), (99.96, "100"), (0.0, "0")])
def test_numbers_are_written_with_three_digits_that_count(value: float, text: str) -> None:
    assert page.number(value) == text
