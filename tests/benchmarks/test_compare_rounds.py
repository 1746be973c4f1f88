"""Rounds: everybody in turn, the disturbed again, chosen by disturbance and never by speed."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import replace

import pytest

from benchmarks.comparison import guard
from benchmarks.comparison.rounds import WARM_TOKENS, Repetition, Row, Rules, measure
from tests.benchmarks.comparisons import FakeWatch, FakeWorker, make_of
from yaie_magic.bench.workloads import SMALL, Workload, make, random_ids

W1, W5 = (make(name, random_ids(512), SMALL) for name in ("W1", "W5"))


def rows_of(
    workers: list[FakeWorker], rules: Rules, shares: list[float] | None = None, said: list[str] | None = None
) -> list[Row]:
    return measure(workers, make_of(W1), rules, (said if said is not None else []).append, FakeWatch(shares or []))


def tpots(row: Row) -> list[float]:
    return [each.figures["tpot_ms"] for each in row.repetitions]


def test_peers_take_turns_and_the_first_run_of_each_does_not_count() -> None:
    order: list[str] = []
    workers = [FakeWorker("a", [9.0, 0.1, 0.2], order), FakeWorker("b", [9.0, 0.3, 0.4], order)]
    rows = rows_of(workers, Rules(rounds=2))
    assert order == ["a", "b", "b", "a", "a", "b"]
    assert tpots(rows[0]) == pytest.approx([100.0, 200.0]) and tpots(rows[1]) == pytest.approx([300.0, 400.0])


def test_the_run_that_does_not_count_is_short_but_for_what_compiles() -> None:
    workers = [FakeWorker(name, [0.1]) for name in ("yaie", "compiled")]
    for name, requests in (("W2", 4), ("W3s", 2)):
        whole = make(name, random_ids(512), replace(SMALL, sibling_tokens=20, many_tokens=(10, 20)))
        measure(workers, make_of(whole), Rules(rounds=1), [].append, FakeWatch([]))
        (first, second), compiled = (worker.seen[-2:] for worker in workers)
        assert len(first.asks) == requests and {ask.tokens for ask in first.asks} == {WARM_TOKENS}
        assert compiled == [whole, whole] and second == whole


def test_edits_are_kept_with_their_depths() -> None:
    rows = measure([FakeWorker("a", [0.1])], make_of(W5), Rules(rounds=1), [].append, FakeWatch([]))
    (found,) = rows[0].to_dict()["repetitions"]
    assert sorted(depth for depth, _ in found["edits"]) == [7, 23, 38, 54]
    assert {ms for _, ms in found["edits"]} == {100.0}


def test_a_disturbed_repetition_is_made_again_and_the_least_disturbed_one_counts() -> None:
    worker = FakeWorker("a", [9.0, 0.5, 0.1, 0.3])
    rows = rows_of([worker], Rules(rounds=1, limit=0.1, tries=3), [0.9, 0.5, 0.4, 0.2])
    # The fastest try was more disturbed than the last one: it does not count.
    assert rows[0].repetitions == [Repetition({**rows[0].repetitions[0].figures}, 0.2, 3)]
    assert tpots(rows[0]) == pytest.approx([300.0])


def test_the_first_quiet_try_ends_a_repetition() -> None:
    worker = FakeWorker("a", [9.0, 0.5, 0.4, 0.1])
    rows = rows_of([worker], Rules(rounds=1, limit=0.1, tries=4), [0.9, 0.5, 0.05])
    assert len(worker.seen) == 3 and rows[0].repetitions[0].tries == 2 and tpots(rows[0]) == pytest.approx([400.0])


def test_every_try_has_ids_of_its_own() -> None:
    numbers: list[int] = []

    def fresh(number: int) -> Workload:
        numbers.append(number)
        return make("W1", random_ids(512), SMALL, number)

    measure([FakeWorker("a", [0.1])], fresh, Rules(rounds=2, tries=2), [].append, FakeWatch([0.0, 0.9, 0.9, 0.9, 0.9]))
    assert len(numbers) == len(set(numbers)) == 5


def test_all_peers_of_a_round_get_the_same_ids() -> None:
    workers = [FakeWorker("a", [0.1]), FakeWorker("b", [0.1])]
    measure(workers, lambda n: make("W1", random_ids(512), SMALL, n), Rules(rounds=1), [].append, FakeWatch([]))
    assert workers[0].seen == workers[1].seen


def test_a_peer_that_fails_is_out_and_the_others_go_on() -> None:
    said: list[str] = []
    workers = [FakeWorker("a", [0.1], fails_at=1), FakeWorker("b", [0.1])]
    rows = rows_of(workers, Rules(rounds=3), said=said)
    assert rows[0].problem == "out of memory" and not rows[0].repetitions and len(workers[0].seen) == 2
    assert len(rows[1].repetitions) == 3
    assert "  a: failed: out of memory" in said


def test_contention_is_what_neither_we_nor_the_measured_process_used(monkeypatch: pytest.MonkeyPatch) -> None:
    busy, family, clock = iter([100.0, 106.0]), iter([10.0, 13.0]), iter([0.0, 2.0])
    monkeypatch.setattr(guard.psutil, "cpu_count", lambda: 4)
    monkeypatch.setattr(guard, "busy_seconds", lambda: next(busy))
    monkeypatch.setattr(guard, "family_seconds", lambda pid: next(family))
    monkeypatch.setattr(guard.time, "perf_counter", lambda: next(clock))
    watch = guard.Contention(4711)
    assert watch.share() == pytest.approx((6 - 3) / (2 * 4), abs=0.02)  # less what this process used meanwhile


def test_seconds_of_a_family_hold_those_of_grandchildren() -> None:
    spin = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'while True: pass'])"
    with subprocess.Popen([sys.executable, "-c", spin]) as process:
        try:
            end, before = time.monotonic() + 60, guard.family_seconds(process.pid)
            while guard.family_seconds(process.pid) < before + 0.2:
                assert time.monotonic() < end
                time.sleep(0.02)
        finally:
            for child in guard.psutil.Process(process.pid).children():
                child.kill()
            process.kill()
    assert guard.family_seconds(process.pid) == 0.0


def test_waiting_for_quiet_ends_with_the_share_that_was_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    shares = iter([0.5, 0.4, 0.05])
    monkeypatch.setattr(guard, "Contention", lambda: FakeWatch([next(shares)]))
    assert guard.wait_until_quiet(0.1, seconds=60, sample=0.0) == 0.05
    shares = iter([0.5])
    assert guard.wait_until_quiet(0.1, seconds=0, sample=0.0) == 0.5
