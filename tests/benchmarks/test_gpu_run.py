"""Parts as processes: one that fails, dies or hangs is a finding, and the next one runs."""

from __future__ import annotations

import json
import os
import sys
import textwrap
import time
from pathlib import Path

import pytest

from benchmarks.gpu.main import environment_of_parts, main, run_parts
from benchmarks.gpu.parts import BY_NAME, PARTS, Part, chosen
from benchmarks.gpu.records import Check, Fact, Measurement
from benchmarks.gpu.report import ALL_WELL, CHECKS_FAILED, TARGETS_MISSED, Report
from benchmarks.gpu.runner import PartResult, Runner

CHILD = """
import json, os, signal, sys, time
part, records = sys.argv[2], sys.argv[4]
def tell(**record):
    with open(records, "a") as file:
        file.write(json.dumps(record) + "\\n")
tell(kind="check", name=part + " began", ok=True, detail="")
if part == "fails":
    tell(kind="check", name="it", ok=False, detail="off by one")
if part == "raises":
    raise RuntimeError("no such kernel")
if part == "dies":
    os.kill(os.getpid(), signal.SIGSEGV)
if part == "hangs":
    if os.fork() == 0:
        time.sleep(600)
    time.sleep(600)
"""


def part(name: str, seconds: int = 20) -> Part:
    return Part(name, "for the test", seconds, "")


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    script = tmp_path / "child.py"
    script.write_text(textwrap.dedent(CHILD))
    return Runner([sys.executable, str(script)], dict(os.environ), tmp_path, tmp_path / "log", lambda _: None)


@pytest.mark.timeout(120)
def test_whatever_a_part_does_the_next_one_runs(runner: Runner) -> None:
    report = Report("2026-01-01", judged=True)
    run_parts(runner, report, [part("fails"), part("raises"), part("dies"), part("well")], 100)
    assert [each.outcome for each in report.results] == ["failed", "failed", "failed", "ok"]
    said = {check.name: check.detail for check in report.failed}
    assert said["it"] == "off by one"
    assert said["raises ends"] == "exit code 1: RuntimeError: no such kernel"
    assert said["dies ends"].startswith("signal 11")
    assert "well began" not in said and report.exit_code == CHECKS_FAILED


@pytest.mark.timeout(120)
def test_a_part_that_hangs_is_ended_with_all_that_it_started(runner: Runner) -> None:
    start = time.monotonic()
    result = runner.run(part("hangs"), seconds=3)
    assert result.outcome == "out of time" and time.monotonic() - start < 60
    assert [check.name for check in result.records if isinstance(check, Check)] == ["hangs began", "hangs ends"]
    children = [line for line in Path("/proc").glob("[0-9]*/cmdline") if _mentions(line, runner.command[1])]
    assert children == []


def _mentions(path: Path, text: str) -> bool:
    try:
        return text in path.read_text(errors="replace")
    except OSError:
        return False


def test_a_part_without_time_is_a_failed_check(runner: Runner) -> None:
    report = Report("2026-01-01", judged=True)
    run_parts(runner, report, [part("well")], seconds=1)
    assert report.results[0].outcome == "not run" and report.exit_code == CHECKS_FAILED


def measurement(target: str, judged: float) -> Measurement:
    return Measurement("a time", 12.5, "us", 12.0, 13.0, 9, "3.7 TB/s", target, judged)


def test_exit_codes_tell_wrong_from_slow() -> None:
    def code(*records: Check | Measurement, judged: bool = True) -> int:
        return Report("", judged, [PartResult(part("a"), "ok", 1.0, list(records))]).exit_code

    assert code(Check("a", True), measurement("decode", 90)) == ALL_WELL
    assert code(Check("a", True), measurement("decode", 80)) == TARGETS_MISSED
    assert code(Check("a", False), measurement("decode", 80)) == CHECKS_FAILED
    assert code(measurement("decode", 80), judged=False) == ALL_WELL


def test_the_report_is_one_json_and_one_table(tmp_path: Path) -> None:
    report = Report("2026-01-01T00:00:00+00:00", judged=True)
    records = [Fact("gpu", "H200"), Check("it", False, "why"), measurement("decode", 80)]
    report.update(PartResult(part("a"), "failed", 1.0, records))
    report.write(tmp_path / "r.json")
    data = json.loads((tmp_path / "r.json").read_text())
    assert data["facts"] == {"gpu": "H200"} and data["exit_code"] == 1 and len(data["targets"]) == 10
    assert data["targets"][0] == {
        "key": "decode",
        "words": "decode attention, batch 32 to 128, 4k to 16k tokens: share of copy bandwidth",
        "goal": 85,
        "unit": "%",
        "most": False,
        "reached": 80,
        "met": False,
        "where": "a time",
    }
    table = report.table()
    assert "FAILED: it: why" in table and "MISSED by 5.9%" in table and "12.5 us  (12 to 13)  3.7 TB/s" in table


def test_parts_are_chosen_by_name_and_have_less_than_eight_minutes() -> None:
    assert [each.name for each in chosen("times, ops")] == ["ops", "times"]
    assert chosen(None) == list(PARTS)
    with pytest.raises(ValueError, match="no part 'opps'"):
        chosen("opps")
    assert sum(each.seconds for each in PARTS) < 480
    assert len(BY_NAME) == len(PARTS)


def test_an_unknown_part_is_exit_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--parts", "opps", "--out", str(tmp_path)])
    assert end.value.code == 2 and "no part 'opps'" in capsys.readouterr().err


def test_parts_find_what_was_brought_along_first(tmp_path: Path) -> None:
    found = environment_of_parts(tmp_path, cpu=True, given={"PYTHONPATH": "/theirs"})
    assert found["PYTHONPATH"].split(os.pathsep) == [str(tmp_path / "site"), "/theirs"]
    assert found["HF_HUB_OFFLINE"] == "1" and "YAIE_CACHE_DIR" not in found
