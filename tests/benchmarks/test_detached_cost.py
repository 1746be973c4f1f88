"""The comparison of an engine in a kernel with a detached one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks import detached, kernel_pages, performance


class Paper:
    """A kernel that takes as long as it is told."""

    def __init__(self) -> None:
        self.busy = False
        self.asked: list[tuple[str, bool]] = []

    def run(self, code: str) -> str:
        if code in (detached.MAKE_BUSY, detached.MAKE_IDLE):
            self.busy = code == detached.MAKE_BUSY
            return ""
        engine = "apart" if "--engine apart" in code else "here"
        self.asked.append((engine, self.busy))
        return {("here", False): "2.0", ("here", True): "8.0", ("apart", False): "2.5", ("apart", True): "2.0"}[
            engine, self.busy
        ]


@pytest.fixture
def paper(monkeypatch: pytest.MonkeyPatch) -> Paper:
    found = Paper()

    @contextmanager
    def kernel() -> Iterator[Paper]:
        yield found

    monkeypatch.setattr(detached, "kernel", kernel)
    return found


def test_the_table_tells_medians_and_what_is_kept(paper: Paper, capsys: pytest.CaptureFixture[str]) -> None:
    detached.main(pairs=2, tokens=100)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["1", "50.0", "12.5", "40.0", "50.0"]
    assert "| in the kernel | 50.0 (50.0 to 50.0) | 12.5 (12.5 to 12.5) | 0.25 (0.25 to 0.25) |" in lines
    assert "| detached | 40.0 (40.0 to 40.0) | 50.0 (50.0 to 50.0) | 1.25 (1.25 to 1.25) |" in lines
    assert lines[-2:] == [
        "kernel idle: detached is 0.80 (0.80 to 0.80) times as fast",
        "kernel busy: detached is 4.00 (4.00 to 4.00) times as fast",
    ]


def test_the_cases_take_turns(paper: Paper) -> None:
    detached.main(pairs=2, tokens=100)
    first, second = paper.asked[2:6], paper.asked[6:]
    assert first == [("here", False), ("apart", False), ("here", True), ("apart", True)]
    assert second == [("apart", False), ("here", False), ("apart", True), ("here", True)]
    assert not paper.busy


def test_a_run_is_written_for_the_page(paper: Paper, tmp_path: Path) -> None:
    assert detached.command(["--out", str(tmp_path / "run.json")]) == 0
    run = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))
    assert performance.part_of(run) is kernel_pages.DETACHED
    assert "| detached | 80.0 (80.0 to 80.0) | 100.0 (100.0 to 100.0) | 1.25 (1.25 to 1.25) |" in (
        kernel_pages.DETACHED.render(run)
    )


@pytest.mark.full
def test_in_a_real_kernel(capsys: pytest.CaptureFixture[str]) -> None:
    detached.main(pairs=1, tokens=16)
    _, line, *_ = capsys.readouterr().out.splitlines()
    assert all(float(figure) > 0 for figure in line.split()[1:])
