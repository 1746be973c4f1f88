"""Tables and plot of a comparison: medians, ratios, and what a reader must know."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.comparison import losses, page, plot, summary
from benchmarks.comparison.cleaned import without_paths
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


def test_every_loss_is_listed_by_figure_and_nothing_within_noise() -> None:
    made = comparison()
    assert list(losses.losses(made)) == []  # no claim either way about a build for another CPU
    made["peers"]["llama.cpp"]["native"] = "yes"
    for each in made["workloads"][0]["rows"][1]["repetitions"]:
        each["figures"] |= {"ttft_ms": 29.8, "output_tokens_per_s": 150.0}
    assert list(losses.losses(made)) == [
        "- W1, output: transformers generate, padded batch is 1.50 times better",
        "- W1, TPOT: llama.cpp's server is 1.20 times better",
    ]
    assert "\n- W1, TPOT: llama.cpp's server is 1.20 times better\n" in page.render(made)
    made["workloads"] = []
    assert "No peer is better" in page.render(made)


def test_edits_are_held_against_the_yardstick_depth_by_depth() -> None:
    made = comparison()
    workload = made["workloads"][0]
    workload["name"], workload["rows"] = "W5", [row(peer, [1.0, 1.0]) for peer in ("yaie", "in place")]
    times = {
        "yaie": [[(900, 30.0), (100, 100.0)], [(900, 10.0), (100, 120.0)]],
        "in place": [[(900, 10.0), (100, 50.0)]] * 2,
    }
    for each in workload["rows"]:
        for repetition, found in zip(each["repetitions"], times[each["peer"]], strict=True):
            repetition["edits"] = found
            repetition["figures"] = {"edit_ttft_ms": 1.0, "first_ttft_ms": 1.0}
    text = "\n".join(page.table(workload, made))
    assert "| 100 | 110.0 | 50.0 | 2.20 |\n| 900 | 20.0 | 10.0 | 2.00 |" in text
    assert "the mean of the ratios is 2.10, the largest 2.20, 100 tokens deep." in text
    workload["rows"].pop()
    assert "suffix alone" not in "\n".join(page.table(workload, made))


def test_memory_stands_beside_the_version() -> None:
    made = comparison()
    made["peers"]["yaie"]["memory_mib"] = "1234"
    assert "- YAIE Magic: 0.1.0; held at most 1,234 MiB\n" in page.render(made)


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        (
            "compare --llama-server /home/me/bin/llama-server --rounds 3",
            "compare --llama-server llama-server --rounds 3",
        ),
        ("compare --out=/tmp/x/ --model '~/models/a'", "compare --out=x/ --model 'a'"),
        ("--llama-server /root/build/server --gguf ../../m.gguf", "--llama-server build/server --gguf m.gguf"),
        ("its process died; see /srv/out/yaie.log", "its process died; see yaie.log"),
        ("n_threads = 2 (n = 2) / 2 | CPU, 12 tokens/s and/or http://127.0.0.1:80/v1", None),
    ],
)
def test_no_folder_of_a_machine_is_published(text: str, clean: str | None) -> None:
    found = without_paths({"a": [text], "b": 1}, root=Path("/root"))
    assert found == {"a": [text if clean is None else clean], "b": 1}


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
