"""docs/performance.md holds what was measured and nothing else, and is not stale."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import performance
from benchmarks.comparison import page
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
    assert "| YAIE Magic | 5 (4 to 6) |" in text and "not measured yet" not in text.lower()
    assert (copies / "comparison.svg").read_text(encoding="utf-8").startswith("<svg")
    assert performance.main(["--check"]) == 0
    kept = json.loads((copies / "comparison.json").read_text(encoding="utf-8"))
    kept["workloads"][0]["rows"][0]["repetitions"][0]["figures"]["tpot_ms"] = 1.0
    (copies / "comparison.json").write_text(json.dumps(kept), encoding="utf-8")
    assert performance.main(["--check"]) == 1


@pytest.mark.parametrize(("changed", "reason"), [({"allow_load": True}, "load"), ({"small": True}, "tiny")])
def test_a_run_that_proves_nothing_is_refused(
    copies: Path, changed: dict[str, bool], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (copies / "run.json").write_text(json.dumps({**comparison(), **changed}), encoding="utf-8")
    with pytest.raises(SystemExit):
        performance.main([str(copies / "run.json")])
    assert reason in capsys.readouterr().err
    assert not (copies / "comparison.json").exists()
