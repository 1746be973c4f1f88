"""Units, shares, targets and verdicts of the GPU check, on a device whose times are known."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from benchmarks.gpu import attention_times, cascade_times, launch_times, small_times
from benchmarks.gpu.attention_times import Shape
from benchmarks.gpu.clock import Timing, num_buffers, time_calls
from benchmarks.gpu.context import Context
from benchmarks.gpu.records import Check, Measurement, Record, RecordFile, Skip, from_line, to_line
from benchmarks.gpu.targets import BY_KEY, TARGETS, Verdict, judge
from tests.benchmarks.fake_gpu import FakeBench

MILLISECOND = 1e-3


def context_of(tmp_path: Path, bench: FakeBench) -> Context:
    return Context(bench, RecordFile(tmp_path / "records"), time.monotonic() + 60, quick=True, tiny=True)


def measured(context: Context) -> dict[str, Measurement]:
    records = context.records.new()
    assert not [each for each in records if isinstance(each, Check)], records
    return {each.name: each for each in records if isinstance(each, Measurement)}


def test_decode_is_judged_by_its_share_of_the_copy_bandwidth(tmp_path: Path) -> None:
    """2 x 48 tokens, 2 heads of 64 numbers of 2 bytes, keys and values: 49,152 bytes in a millisecond."""
    context = context_of(tmp_path, FakeBench(lambda: MILLISECOND))
    attention_times.run(context, bandwidth=98.304e6, samples=3)
    found = measured(context)
    decode = found["decode attention, 2 x 48"]
    assert (decode.value, decode.unit, decode.count, decode.target) == (pytest.approx(1000), "us", 3, "decode")
    assert decode.judged == pytest.approx(50)
    assert "50 % of copy" in decode.note


def test_prefill_is_judged_by_operations_per_second(tmp_path: Path) -> None:
    """Half of 48 x 48 scores, two products, two operations each, 4 heads of 64."""
    context = context_of(tmp_path, FakeBench(lambda: MILLISECOND))
    attention_times.run(context, bandwidth=1e9, samples=3)
    prefill = measured(context)["prefill attention, causal, 48"]
    assert prefill.judged == pytest.approx(2 * 2 * 48 * 48 / 2 * 4 * 64 / MILLISECOND / 1e12)
    assert Shape(1, 16_384).causal_operations == pytest.approx(2.199e12, rel=1e-3)
    assert Shape(32, 4096).cache_bytes == 536_870_912


def test_small_kernels_have_their_units(tmp_path: Path) -> None:
    context = context_of(tmp_path, FakeBench(lambda: MILLISECOND))
    small_times.run(context, bandwidth=1e9, samples=3)
    found = measured(context)
    write = found["KV write, 32 tokens"]
    assert write.judged == pytest.approx((32 * 8 * 128 * 2 * 4 + 32 * 8) / MILLISECOND / 1e9 * 100)
    sampling = found["sampling, 4 x 1000 bfloat16"]
    assert (sampling.unit, sampling.target) == ("ms", "sampling")
    assert sampling.judged == pytest.approx(1.0)


def test_cascade_is_judged_by_the_flat_decode_beside_it(tmp_path: Path) -> None:
    times = iter([8 * MILLISECOND] * 4 + [MILLISECOND] * 4)
    context = context_of(tmp_path, FakeBench(lambda: next(times)))
    cascade_times.run(context, samples=2)
    (cascade,) = measured(context).values()
    assert cascade.judged == pytest.approx(8) and cascade.target == "cascade"


def test_launches_are_timed_on_the_host(tmp_path: Path) -> None:
    bench = FakeBench(lambda: MILLISECOND)
    context = context_of(tmp_path, bench)
    launch_times.run(context)
    found = measured(context)
    assert len(found) == 3 and all(one.unit == "us" for one in found.values())
    assert [one.target for one in found.values()] == ["launch", "launch-checked", ""]
    assert len(bench.launcher.launched) >= 8


def test_a_rotation_exceeds_the_cache() -> None:
    l2 = 60 * 2**20
    assert num_buffers(512 * 2**20, l2) == 1
    assert num_buffers(16 * 2**20, l2) == 12
    assert num_buffers(1, l2) == 64
    assert num_buffers(1, 0) == 1


def test_time_of_one_call_among_several() -> None:
    calls = [lambda: None] * 4
    bench = FakeBench(lambda: 4 * MILLISECOND)
    timing = time_calls(bench, calls, samples=5)
    assert timing == Timing(pytest.approx(MILLISECOND), pytest.approx(MILLISECOND), pytest.approx(MILLISECOND), 5)
    assert bench.captured == 1


def figure(target: str, judged: float, name: str = "it") -> Measurement:
    return Measurement(name, judged, "x", judged, judged, 1, "", target, judged)


def test_the_worst_figure_counts() -> None:
    verdicts = {one.target.key: one for one in judge([figure("decode", 95), figure("decode", 80, "long")])}
    assert (verdicts["decode"].reached, verdicts["decode"].where, verdicts["decode"].met) == (80, "long", False)
    assert verdicts["decode"].words == "MISSED by 5.9%"
    assert verdicts["prefill"].met is None and verdicts["prefill"].words == "unmeasured"
    assert len(verdicts) == len(TARGETS)


def test_less_is_better_for_times() -> None:
    sampling = {one.target.key: one for one in judge([figure("sampling", 0.2), figure("sampling", 0.1)])}["sampling"]
    assert (sampling.reached, sampling.met, sampling.words) == (0.2, True, "met, 20.0% to spare")
    assert Verdict(BY_KEY["launch"], 6.0).words == "MISSED by 20.0%"


def test_an_unknown_target_is_an_error() -> None:
    with pytest.raises(KeyError):
        judge([figure("no-such-target", 1)])


@pytest.mark.parametrize("record", [Check("a", False, "b"), Skip("a", "b"), figure("decode", 1.5)])
def test_records_go_through_json(record: Record) -> None:
    assert from_line(to_line(record)) == record


def test_a_half_written_record_is_read_when_it_is_whole(tmp_path: Path) -> None:
    file = RecordFile(tmp_path / "records")
    assert file.new() == []
    file.add(Check("a", True))
    with file.path.open("a") as other:
        other.write(to_line(Check("b", True))[:9])
    assert [each.name for each in file.new()] == ["a"]
    with file.path.open("a") as other:
        other.write(to_line(Check("b", True))[9:] + "\n")
    assert [each.name for each in file.new()] == ["b"] and file.new() == []


def test_a_failure_becomes_a_check_and_the_part_goes_on(tmp_path: Path) -> None:
    context = context_of(tmp_path, FakeBench(lambda: MILLISECOND))
    with context.guarded("it"):
        raise RuntimeError("two\nlines")
    (check,) = context.records.new()
    assert check == Check("it", False, "RuntimeError: two")
