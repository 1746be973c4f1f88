"""docs/performance.md holds what was measured and nothing else, and is not stale."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import kernel_pages, performance, prefix_store_page, run_file, scheduling_page
from benchmarks.comparison import page
from benchmarks.run_file import Begun
from benchmarks.scheduling_growth import STEP
from benchmarks.scheduling_share import PHASES
from tests.benchmarks.comparisons import comparison


def test_the_page_keeps_what_is_around_a_part() -> None:
    part = performance.PARTS[0]
    text = f"head\n{part.BEGIN}\nold\n{part.END}\ntail\n"
    made = performance.page_with(part, text, "new")
    assert made == f"head\n{part.BEGIN}\nnew\n{part.END}\ntail\n" == performance.page_with(part, made, "new")


def test_a_page_without_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="lost its markers"):
        performance.page_with(performance.PARTS[0], "nothing", "new")


def test_the_page_is_current() -> None:
    assert performance.main(["--check"]) == 0


@pytest.fixture
def copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The page, results and picture in a folder of the test."""
    text = performance.PAGE.read_text(encoding="utf-8")
    monkeypatch.setattr(performance, "PAGE", tmp_path / "performance.md")
    monkeypatch.setattr(page, "RESULTS", tmp_path / "comparison.json")
    monkeypatch.setattr(page, "PICTURE", tmp_path / "comparison.svg")
    (tmp_path / "performance.md").write_text(text, encoding="utf-8")
    return tmp_path


def test_a_run_is_taken_over_and_then_the_page_is_checked_against_it(copies: Path) -> None:
    (copies / "run.json").write_text(json.dumps(comparison()), encoding="utf-8")
    assert performance.main([str(copies / "run.json")]) == 0
    text = (copies / "performance.md").read_text(encoding="utf-8")
    assert "| YAIE Magic | 5 (4 to 6) |" in text and "no figure against a peer" not in text
    assert (copies / "comparison.svg").read_text(encoding="utf-8").startswith("<svg")
    assert performance.main(["--check"]) == 0
    kept = json.loads((copies / "comparison.json").read_text(encoding="utf-8"))
    kept["workloads"][0]["rows"][0]["repetitions"][0]["figures"]["tpot_ms"] = 1.0
    (copies / "comparison.json").write_text(json.dumps(kept), encoding="utf-8")
    assert performance.main(["--check"]) == 1


def growth(last: float) -> dict[str, Any]:
    return {"table": STEP, "name": "decodes", "sizes": [10, 20], "microseconds": [100.0, last], "flat": True}


def test_the_page_names_what_was_missed() -> None:
    """Of every part: what was not measured, where a peer is better, what is over its target; and only that."""
    made = comparison()
    made["peers"]["llama.cpp"]["native"] = "yes"
    runs = [(part, made if part is performance.PARTS[0] else None) for part in performance.PARTS]
    lines = performance.misses(runs).splitlines()
    names = ["gpu", "scheduling", "prefix store", "display cost", "detached cost"]
    assert lines[0] == "- comparison: W1, TPOT: llama.cpp's server is 1.20 times better"
    assert lines[1:] == [f"- {name}: not measured" for name in names]
    one = {"peer": "generate", "workload": "W1", "equal": 0, "tied": 0, "different": 2, "widest": 1.0, "distinct": 9}
    assert list(page.misses(comparison(agreement=[{**one, "problem": ""}]))) == [
        "W1: 2 outputs differ from those of transformers generate, padded batch"
    ]
    whole = [(performance.RUNS["scheduling"], {"growth": [growth(120.0)], "share": []})]
    assert performance.misses(whole).startswith("None: ")


def test_a_gpu_target_that_is_not_met_is_a_miss() -> None:
    target = {"words": "decode", "goal": 85, "unit": "%", "most": False, "met": True, "reached": 90.0}
    runs = {"targets": [target, {**target, "met": False, "reached": 80.0}, {**target, "met": None, "reached": None}]}
    assert list(performance.PARTS[1].misses(runs)) == [
        "decode: 80, at least 85 %",
        "decode: unmeasured, at least 85 %",
    ]


RUNS: dict[str, dict[str, Any]] = {
    scheduling_page.PART.kind: {
        "growth": [growth(120.0), growth(900.0)],
        "share": [{"sequences": 64, **dict.fromkeys(PHASES, 0.5), "forward": 100.0}],
    },
    prefix_store_page.PART.kind: {
        "times": {"cold": [100.0, 300.0, 200.0], "in memory": [10.0, 10.0, 30.0], "store": [20.0, 16.0, 12.0]},
        "windowed": {"cold": [100.0], "in memory": [10.0], "store": [25.0]},
        "gaps": {"nothing else": 12.0, "a record is read": 34.5},
        "prefix": 1024,
        "own": 32,
        "window": 256,
        "record_mib": 64.0,
    },
}
RUNS[kernel_pages.DISPLAY.kind] = {
    "shares": {"slower": [0.01, 0.03, -0.01], "busier": [0.1] * 3, "kept": [0.02, 0.018, 0.019]},
    "tokens": 800,
}
RUNS[kernel_pages.DETACHED.kind] = {
    "speeds": {"in the kernel": {"idle": [40.0], "busy": [10.0]}, "detached": {"idle": [50.0], "busy": [40.0]}},
    "tokens": 200,
}
SHOWN = {
    kernel_pages.DISPLAY.kind: [
        "Medians of 3 pairs of 800 tokens each way, shown less quiet, in per cent:",
        "| slower by the engine's clock | 1.0 (-1.0 to 3.0) |",
        "| engine's thread kept waiting | 1.9 (1.8 to 2.0) |",
    ],
    kernel_pages.DETACHED.kind: [
        "| detached | 50.0 (50.0 to 50.0) | 40.0 (40.0 to 40.0) | 0.80 (0.80 to 0.80) |",
        "kernel idle: detached is 1.25 (1.25 to 1.25) times as fast; "
        "kernel busy: detached is 4.00 (4.00 to 4.00) times as fast.",
    ],
    scheduling_page.PART.kind: [
        "| step of 64 decodes over cached nodes: decodes | 100.0 at 10, 120.0 at 20 | 1.20 |  |",
        "| step of 64 decodes over cached nodes: decodes | 100.0 at 10, 900.0 at 20 | 9.00 | **over** |",
        "| schedule over running requests | not measured in this run | | |",
        "- scheduling: step of 64 decodes over cached nodes, decodes: 9.00 times for twice the size and 9.00 in all, "
        "at most 2.5",
        "| 64 | 0.50 | 0.50 | 100.00 | 0.50 | 0.50 | 0.50 | 2.0% |",
    ],
    prefix_store_page.PART.kind: [
        "| store | 16.0 (12.0 to 20.0) | 8.0% | 1.60 |",
        "| a record is read | 34.5 |",
        "| store | 25.0 (25.0 to 25.0) | 25.0% | 2.50, **over** |",
        "- prefix store: a restart with the prefix store with a sliding window takes 2.50 times as long as memory, "
        "at most 2",
    ],
}


@pytest.mark.parametrize("kind", RUNS)
def test_what_a_benchmark_wrote_stands_on_the_page(
    kind: str, copies: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run_file, "DOCS", copies)
    assert "Not measured yet" in performance.current((copies / "performance.md").read_text(encoding="utf-8"))
    run = Begun(kind, ["benchmarks/it", "--model", "/home/me/llama", "--out", str(copies / "run.json")])
    run.write(copies / "run.json", RUNS[kind])
    written = json.loads((copies / "run.json").read_text(encoding="utf-8"))
    (copies / "run.json").write_text(json.dumps({**written, "foreign": 0.11}), encoding="utf-8")
    with pytest.raises(SystemExit):
        performance.main([str(copies / "run.json")])
    assert "others took 11% of the machine, at most 10%" in capsys.readouterr().err
    (copies / "run.json").write_text(json.dumps({**written, "foreign": 0.04}), encoding="utf-8")
    assert performance.main([str(copies / "run.json")]) == 0 == performance.main(["--check"])
    text = (copies / "performance.md").read_text(encoding="utf-8")
    assert "of which others took 4%, by `benchmarks/it --model llama --out run.json`." in text
    assert [line for line in SHOWN[kind] if line not in text.splitlines()] == []


@pytest.mark.parametrize(("changed", "reason"), [({"allow_load": True}, "load"), ({"small": True}, "tiny")])
def test_a_run_that_proves_nothing_is_refused(
    copies: Path, changed: dict[str, bool], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (copies / "run.json").write_text(json.dumps({**comparison(), **changed}), encoding="utf-8")
    with pytest.raises(SystemExit):
        performance.main([str(copies / "run.json")])
    assert reason in capsys.readouterr().err
    assert not (copies / "comparison.json").exists()
