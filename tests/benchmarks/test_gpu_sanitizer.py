"""What compute-sanitizer says, and what is made of it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from benchmarks.gpu import sanitizer
from benchmarks.gpu.context import Context
from benchmarks.gpu.records import Check, Record, RecordFile, Skip
from tests.benchmarks.fake_gpu import FakeBench

CLEAN = "========= COMPUTE-SANITIZER\nran 86 cases\n========= ERROR SUMMARY: 0 errors\n"
OUTSIDE = """========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 16 bytes
=========     at paged_attention_decode+0x1230 in paged_attention_decode.cu:88
ran 86 cases
========= ERROR SUMMARY: 1 error
"""
RACE = "========= Error: Race reported between Write access and Read access\nran 86 cases\n" + (
    "========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)\n"
)
REFUSED = "========= COMPUTE-SANITIZER\n========= Error: Device not supported. Please refer to the list\n"
CRASH = "Traceback (most recent call last):\nValueError: merge_attention_states: 7 tokens: out is off by 1.0\n"


def found(tmp_path: Path, code: int, said: str) -> Record:
    context = Context(FakeBench(lambda: 1.0), RecordFile(tmp_path / "records"), time.monotonic() + 60)
    sanitizer.verdict(context, "memcheck", code, said)
    (record,) = context.records.new()
    return record


def test_no_error_is_a_check_that_says_how_many_cases_ran(tmp_path: Path) -> None:
    assert found(tmp_path, 0, CLEAN) == Check(
        "compute-sanitizer memcheck", True, "ran 86 cases; ERROR SUMMARY: 0 errors"
    )


@pytest.mark.parametrize(
    ("said", "words"), [(OUTSIDE, "Invalid __global__ read"), (RACE, "1 hazard"), (CRASH, "out is off by 1.0")]
)
def test_an_error_is_a_failed_check_with_its_first_line(tmp_path: Path, said: str, words: str) -> None:
    record = found(tmp_path, 86 if said is not CRASH else 1, said)
    assert isinstance(record, Check) and not record.ok and words in record.detail


def test_a_tool_that_the_machine_refuses_is_not_tried(tmp_path: Path) -> None:
    record = found(tmp_path, 1, REFUSED)
    assert isinstance(record, Skip) and "Device not supported" in record.reason


def test_without_a_gpu_or_a_tool_it_says_so(tmp_path: Path) -> None:
    context = Context(FakeBench(lambda: 1.0), RecordFile(tmp_path / "records"), time.monotonic() + 60)
    sanitizer.run(context)
    assert context.records.new() == [Skip("compute-sanitizer", "there is no GPU")]
