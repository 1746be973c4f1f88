"""The command of the soak: what it prints, writes and ends with, whatever becomes of a row."""

from __future__ import annotations

import dataclasses
import functools
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.soak import child, goals, page, run
from tests.soak.figure import Figure
from tests.soak.result import Result, Soak, read
from tests.soak.rows import BY_NUMBER, ROWS, Row, sizes
from tests.soak.suite import Passes, suite

GOOD = """
import json, sys
json.dump({"size": "3 x", "figure": "0 wrong", "faults": [], "times": "9 ms", "skipped": ""}, open(sys.argv[1], "w"))
"""
BAD = GOOD.replace('"faults": []', '"faults": ["it was wrong"]')
PROGRAMS = {1: GOOD, 2: BAD, 4: "raise SystemExit(3)", 19: "import time; time.sleep(600)", 12: GOOD}
PROGRAMS[6] = GOOD.replace('"skipped": ""', '"part": "in part: 3 of 40 tests"')
PROGRAMS |= {23: GOOD.replace('"skipped": ""', '"skipped": "12 x no Chromium"'), 18: GOOD.replace('""', '"no atheris"')}
SOAK = Soak(1.0, 7, run.machine(), True, 60.0, [])
RESULT = Result(4, "greedy | answers", "0 <differences>", 60, 7, "60 x 6", "0 differences", (), "9 ms", 3.0)


@pytest.fixture
def soak(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The command with rows that do as they are told; gives its exit code and the JSON."""

    def command(row: Row, size: int, seed: int, answer: Path) -> list[str]:
        return [sys.executable, "-c", PROGRAMS[row.number], str(answer)]

    made = functools.partial(run.Runner, command=command, logs=tmp_path)
    monkeypatch.setattr(run, "Runner", lambda seed, _: made(seed, 2.0))

    def start(*words: str) -> tuple[int, Soak]:
        out = tmp_path / "soak.json"
        code = run.main([*words, "--out", str(out), "--seed", "7"])
        return code, read(out)

    return start


def test_green_rows_end_with_0(soak: Any, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = soak("--rows", "1,12")
    assert code == 0 and found.complete and [one.row for one in found.results] == [1, 12]
    said = capsys.readouterr().out
    assert "0 wrong" in said and "2 rows in" in said and "seed 7: 2 ok, 0 RED, 0 not run" in said


def test_a_red_a_dead_and_a_hung_row_end_with_1(soak: Any, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = soak("--rows", "1,2,4,19", "--jobs", "4")
    faults = {one.row: one.faults for one in found.results}
    assert code == 1 and faults[1] == () and faults[2] == ("it was wrong",)
    assert "ended with 3" in faults[4][0] and "did not end within 2 s" in faults[19][0]
    said = capsys.readouterr().out
    assert f"again: ./scripts/soak --rows 2 --size {found.ordered()[1].size} --seed 7" in said


@pytest.mark.parametrize(
    "written",
    ["", '{"size": "3 x", "fig', "[]", "3", '{"faults": []}', '{"size": "1", "figure": "x", "faults": null}', "\\xff"],
)
def test_a_figure_that_was_cut_off_is_a_red_row_and_the_rest_goes_on(
    soak: Any, monkeypatch: pytest.MonkeyPatch, written: str
) -> None:
    monkeypatch.setitem(PROGRAMS, 2, f"import sys; open(sys.argv[1], 'wb').write(b'{written}')")
    code, found = soak("--rows", "1,2,12", "--jobs", "1")
    assert code == 1 and found.complete and len(found.results) == 3
    [red] = found.red
    assert red.row == 2 and red.figure == "it died" and "ended with 0 and no figure" in red.faults[0]


def test_a_row_writes_its_figure_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full."""
    write = Path.write_text

    def full(path: Path, text: str, **how: Any) -> int:
        write(path, text[:9], **how)
        raise OSError("no space left on device")

    def row() -> Callable[[int, int], Figure]:
        return lambda size, seed: Figure(str(size), "0 wrong")

    monkeypatch.setitem(BY_NUMBER, 1, dataclasses.replace(BY_NUMBER[1], make=row))
    answer = tmp_path / "figure.json"
    assert child.main(["1", "2", "3", str(answer)]) == 0 and run.figure_of(answer)["size"] == "2"
    answer.unlink()
    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="no space"):
        child.main(["1", "2", "3", str(answer)])
    assert not answer.exists()


def test_a_row_that_did_not_run_ends_with_3(soak: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Whether none or only a part of it ran; who did not ask for it gets a 0, and a broken gate stays a 1."""
    code, found = soak("--rows", "1,18,23")
    said = capsys.readouterr().out
    assert code == 3 and [one.row for one in found.not_run] == [18, 23] and found.red == []
    assert "NOT RUN, or not whole: 18, 23. This is no green run" in said and "1 ok, 0 RED, 2 not run" in said
    assert "0 wrong; not run: 12 x no Chromium" in said
    assert soak("--rows", "2,23")[0] == 1 and soak("--rows", "1")[0] == 0


def test_a_row_in_part_ends_with_0_and_says_so(soak: Any, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = soak("--rows", "1,6", "--minutes", "0.5")
    said = capsys.readouterr().out
    assert code == 0 and [one.row for one in found.in_part] == [6]
    assert "0 wrong; in part: 3 of 40 tests" in said and "1 ok, 1 ok in part, 0 RED, 0 not run" in said
    assert "IN PART: 6: 0.5 minutes are too few for them" in said
    assert page.missing(found)[0] == "- Row 6 ran in part: in part: 3 of 40 tests\n"


def test_an_interrupt_prints_the_table_so_far(
    soak: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def pressed(soak_so_far: Soak) -> None:
        if soak_so_far.results:
            raise KeyboardInterrupt

    monkeypatch.setattr(run, "progress", lambda one, soak_so_far, rows: pressed(soak_so_far))
    start = time.monotonic()
    code, found = soak("--rows", "1,19", "--jobs", "2")
    assert code == 130 and not found.complete and time.monotonic() - start < 60
    said = capsys.readouterr().out
    assert [one.row for one in found.results] == [1] and "the run did not end" in said


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--minutes", "0"], "--minutes 0"),
        (["--minutes", "nan"], "--minutes nan"),
        (["--rows", "99"], "there are rows 1, 2"),
        (["--rows", "x"], "ranges"),
        (["--size", "5"], "--size"),
        (["--jobs", "0"], "--jobs 0"),
        (["--seed", "-1"], "--seed -1"),
        (["--minuts", "1"], "--minuts"),
    ],
)
def test_wrong_words_end_with_2(words: list[str], named: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run.main(words)
    assert ended.value.code == 2 and named in capsys.readouterr().err


def test_sizes_follow_the_minutes() -> None:
    little, much = sizes(list(ROWS), 60), sizes(list(ROWS), 6000)
    assert all(little[row.number] >= row.least for row in ROWS)
    assert all(much[number] >= little[number] for number in little) and much[1] > 5 * little[1]
    assert sorted(BY_NUMBER) == [*range(1, 22), *range(23, 27)]


def test_every_row_can_be_made() -> None:
    assert all(callable(row.make()) for row in ROWS)


@pytest.mark.full
def test_tests_are_run_again_and_counted(tmp_path: Path) -> None:
    found = suite("tests/soak/test_run.py", keyword="sizes_follow or every_row_can", noun="checks")(1, 3)
    assert found.faults == () and found.figure == "0 failed" and found.size == "2 checks"


SLOW_TESTS = """
import pytest, time

@pytest.mark.parametrize("number", range(4))
def test_slow(number):
    time.sleep(0.4)

@pytest.mark.xfail
def test_that_must_fail():
    assert False
"""


@pytest.mark.parametrize(("asked", "whole_s"), [(1, 9.0), (1, 1.0), (1, 0.0)])
def test_tests_that_were_not_reached_are_told(tmp_path: Path, asked: int, whole_s: float) -> None:
    """Too few seconds by design are a row in part; seconds that should do suffice, or it is said."""
    (tmp_path / "test_slow.py").write_text(SLOW_TESTS, encoding="utf-8")
    found = suite(str(tmp_path / "test_slow.py"), whole_s=whole_s)(asked, 3)
    assert found.faults == ()
    if whole_s > asked:
        assert found.part.startswith("in part: 3 of 5 tests; all take about 9 s, 1 s") and found.skipped == ""
    else:
        assert (found.part, found.skipped) == ("", "" if whole_s else "not whole: 3 of 5 tests")


def test_ten_minutes_are_enough_for_every_test_of_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds: list[float] = []
    monkeypatch.setattr("tests.soak.suite.suite", lambda *_, whole_s, **__: seconds.append(whole_s))
    size_of, suites = sizes(list(ROWS), 2 * 600), 0
    for row in ROWS:
        row.make()
        if len(seconds) > suites:
            suites += 1
            assert seconds[-1] <= 0.9 * size_of[row.number], row.number
    assert suites == 10


def test_a_pass_without_tests_or_without_an_end_is_red(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text('{"collected": 0, "failed": [], "skipped": {}}', encoding="utf-8")
    passes = Passes()
    passes.add(tmp_path / "report.json", 5, "")
    passes.add(tmp_path / "none.json", -11, "it crashed")
    assert passes.failed == ["no test was collected", "pytest ended with -11: it crashed"]


def test_the_page_fits_its_generator() -> None:
    assert page.main(["--check"]) == 0
    text = page.PAGE.read_text(encoding="utf-8")
    table = text.split("## The last run")[1].split("\n## ")[0]
    assert all(f"\n| {row.number} | " in table for row in ROWS), "every row is on the page of a published run"


def test_a_run_is_published_with_its_misses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(page, "PAGE", tmp_path / "reliability.md")
    monkeypatch.setattr(page, "KEPT", tmp_path / "reliability.json")
    red = Result(14, "overload", "gate", 2, 7, "40 clients", "1 otherwise", ("500 | <b>",), "", 3.0)
    left = Result(23, "hostile text", "gate", 2, 7, skipped="no browser")
    done = Soak(1.0, 7, run.machine(), True, 60.0, [left, red, RESULT])
    done.write(tmp_path / "run.json")
    assert page.main([str(tmp_path / "run.json")]) == 0 == page.main(["--check"])
    text = page.PAGE.read_text(encoding="utf-8")
    assert "| 4 | greedy \\| answers | 0 &lt;differences> | 60 x 6 | 0 differences | ok |" in text
    assert "- Row 14 is red: 500 \\| &lt;b>" in text and "- Row 23 did not run: no browser" in text
    assert "- Not in this run: rows 1, 2, 3, 5" in text and text.index("| 4 |") < text.index("| 14 |")
    assert f"{done.machine['date']}{page.commit_of(done)}: " in text
    monkeypatch.setattr(page.published, "digest", lambda name: "changed since")
    assert page.main(["--check"]) == 0
    assert "mistakes were planted in an older text of scheduler" in capsys.readouterr().out
    kept = json.loads(page.KEPT.read_text(encoding="utf-8"))
    kept["results"][0]["figure"] = "9 differences"
    page.KEPT.write_text(json.dumps(kept), encoding="utf-8")
    assert page.main(["--check"]) == 1


def test_an_unfinished_run_is_not_published(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Soak(1.0, 7, run.machine(), False, 60.0, [RESULT]).write(tmp_path / "run.json")
    (tmp_path / "other.json").write_text("[1]", encoding="utf-8")
    for name, said in (("run", "did not end"), ("other", "no run of scripts/soak"), ("none", "No such file")):
        with pytest.raises(SystemExit):
            page.main([str(tmp_path / f"{name}.json")])
        assert said in capsys.readouterr().err


MEASURED = {
    8: "until the cell ended: median 10, p99 15, worst {} ms; and more: worst 9999 ms",
    9: "from the last line to the end: median 1568, p99 1568, worst {} ms; kernel restart: median 2, worst 9334 ms",
    14: "admitted: median 404, p99 911, worst 9913 ms; one alone afterwards {} s; memory +45 MB",
    15: "tokens/s of the others 100 alone, 95 beside them; the last unread one ended after 0.0 s; {} MB a client",
    17: "loop lag: median 0, p99 3, worst {} ms; /health meanwhile: median 2, p99 6, worst 800 ms",
    24: "memory +1.4 MB since the first round; +0.8 MB/h, 95 %: -1.0 to {} (21 samples in 41 s)",
}


@pytest.mark.parametrize(
    ("row", "met", "missed", "told"),
    [
        (8, "15", "1500", "Row 8: 1500 ms until a cell ended; the goal is at most 1000"),
        (9, "1568", "3001", "Row 9: 3001 ms until a process ended"),
        (14, "0.09", "2.50", "Row 14: 2.5 s for a request"),
        (15, "+0.99", "+1.57", "Row 15: 1.57 MB a client; the goal is at most 1"),
        (17, "5", "101", "Row 17: 101 ms of loop lag"),
        (24, "+0.9", "+107.3", "Row 24 was too short to tell whether memory grows by less than 1 MB/h"),
    ],
)
def test_a_goal_beside_the_gates_that_was_missed_is_a_miss(row: int, met: str, missed: str, told: str) -> None:
    def misses(value: str) -> str:
        one = Result(row, "what", "gate", 1, 7, "1", "0 wrong", times=MEASURED[row].format(value))
        return page.misses(Soak(1.0, 7, {}, True, 60.0, [one]), {})

    assert "Beside the gates" not in misses(met) and f"\nBeside the gates:\n\n- {told}" in misses(missed)


def test_further_misses_beside_the_gates() -> None:
    growing = Result(24, "what", "gate", 1, 7, times="+9.0 MB/h, 95 %: +8.0 to +10.0 (21 samples in 41 s)")
    starved = Result(15, "what", "gate", 1, 7, times="tokens/s of the others 3070 alone, 16 beside them")
    assert [*goals.missed(growing)] == ["Row 24: memory grew by at least 8 MB/h; the goal is at most 1"]
    assert next(iter(goals.missed(starved))).startswith("Row 15: 16 tokens/s of the others beside those clients")
    rows = [Result(row.number, row.what, row.gate, 1, 7, "1", "0 wrong") for row in ROWS]
    assert page.misses(Soak(1.0, 7, {}, True, 60.0, rows), {}).startswith("Nothing: ")
    assert "did not note" in page.commit_of(Soak(1.0, 7, {}))
    assert page.commit_of(Soak(1.0, 7, {"commit": "0123456789abcdef+"})) == " at commit 0123456789ab with changes"


def test_the_figures_that_goals_are_of_stand_among_what_rows_print() -> None:
    """In the kept run: a figure that is written otherwise would be missed by nobody."""
    kept = {one.row: one.times for one in read(page.ROOT / "docs" / "reliability.json").results}
    assert all(goal.figure.search(kept[goal.row]) for goal in goals.GOALS)
    assert goals.OTHERS.search(kept[goals.READERS]) and goals.SLOPE.search(kept[goals.MIXED])
