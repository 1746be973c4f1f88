"""One comparison from its plan to its JSON, over workers that are made up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.comparison import comparing
from benchmarks.comparison.comparing import Comparison, Plan
from benchmarks.comparison.main import wrong
from benchmarks.comparison.peer import PEERS, Setup
from benchmarks.comparison.rounds import Rules
from benchmarks.comparison.worker import PeerFailed
from tests.benchmarks.comparisons import FakeWatch, FakeWorker
from yaie_magic.bench.trial import Served, Trial
from yaie_magic.bench.workloads import SMALL, WORKLOADS, Workload, make, random_ids

SETUP = Setup("model", "", "bfloat16", 1, 128, 4)


class Scripted(FakeWorker):
    """A worker whose load or answers go as a test has it, by the peer's name."""

    made: list[Scripted]
    refuses: dict[str, str]
    answers: dict[str, int]

    def __init__(self, name: str, setup: Setup, log: Path) -> None:
        super().__init__(name, [0.1])
        self.about, self.setup, self.closed, self.asked = {"version": "1"}, setup, False, list[Any]()
        Scripted.made.append(self)

    def load(self) -> None:
        if self.name in self.refuses:
            raise PeerFailed(self.refuses[self.name])

    def run(self, workload: Workload) -> Trial:
        found = super().run(workload)
        shift = self.answers.get(self.name, 0)
        return Trial(found.wall, tuple(Served(s.ttft, s.total, (shift, *s.token_ids[1:])) for s in found.served))

    def judge(self, cases: list[Any]) -> list[float]:
        self.asked += cases
        return [0.5 for _ in cases]

    def close(self) -> None:
        self.closed = True


@pytest.fixture(autouse=True)
def workers(monkeypatch: pytest.MonkeyPatch) -> list[Scripted]:
    Scripted.made, Scripted.refuses, Scripted.answers = [], {}, {}
    monkeypatch.setattr(comparing, "Worker", Scripted)
    monkeypatch.setattr(comparing.measure, "__defaults__", (FakeWatch([]),))
    return Scripted.made


def plan(peers: list[str], names: list[str], check: Setup | None = None) -> Plan:
    def maker(name: str) -> Any:
        return lambda repetition: make(name, random_ids(512), SMALL, repetition)

    return Plan(peers, {name: maker(name) for name in names}, SETUP, check, Rules(1), "a model", Path("logs"))


def test_rows_of_those_who_run_and_reasons_of_those_who_do_not(workers: list[Scripted]) -> None:
    Scripted.refuses = {"continuous": "no memory"}
    said: list[str] = []
    found = Comparison(plan(list(PEERS), ["W1", "W5"]), said.append).run()
    assert found["peers"]["llama.cpp"] == {"missing": "no --llama-server was given"}
    assert found["peers"]["continuous"] == {"missing": "it could not be loaded: no memory"}
    assert found["agreement"] == [] and "yaie: 1" in said
    one, edits = ({row["peer"]: row for row in each["rows"]} for each in found["workloads"])
    assert set(one) == {"yaie", "generate", "compiled"} and one["compiled"]["problem"] == ""
    assert set(edits) == {"yaie", "generate", "compiled", "in place"}
    assert edits["compiled"]["declined"] and "see generate" in edits["compiled"]["problem"]
    assert all(worker.closed for worker in workers)
    assert found["workloads"][0]["size"] == "1 request, 8 prompt and 6 output tokens"
    assert not wrong(found)


def test_outputs_are_compared_in_the_other_setup_and_judged_by_the_plain_model(workers: list[Scripted]) -> None:
    check = Setup("model", "", "float32", 1, 128, 4)
    Scripted.answers = {"continuous": 9}
    found = Comparison(plan(["yaie", "generate", "continuous", "in place"], ["W1", "W5"], check), print).run()
    told = {each["peer"]: each for each in found["agreement"]}
    assert set(told) == {"generate", "continuous"}  # the yardstick is not compared
    assert told["generate"]["equal"] == 3 and told["continuous"]["different"] == 3  # of W5
    judges = [worker for worker in workers if worker.asked]
    assert [(judge.name, judge.setup.dtype) for judge in judges] == [("generate", "float32")]
    assert judges[0].asked[0]["tokens"] == [0, 9] and all(worker.closed for worker in workers)
    assert wrong(found)


def test_only_some_requests_are_compared(workers: list[Scripted], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(comparing.CHECKED, "W2", (2, 4))
    check = Setup("model", "", "float32", 1, 128, 4)
    found = Comparison(plan(["yaie", "generate"], ["W2"], check), print).run()
    assert [(each["equal"], each["tokens"] <= 8) for each in found["agreement"]] == [(2, True)]
    assert {about["memory_mib"] for about in found["peers"].values()} == {"300"}


def test_without_a_judge_differences_are_no_verdict() -> None:
    check = Setup("model", "", "float32", 1, 128, 4)
    Scripted.answers = {"continuous": 9}
    found = Comparison(plan(["yaie", "continuous"], ["W1"], check), print).run()
    assert "nobody can rule" in found["agreement"][0]["problem"]


def test_workers_end_when_the_comparison_breaks_off(workers: list[Scripted], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(comparing, "measure", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Comparison(plan(["yaie", "generate"], ["W1"]), print).run()
    assert len(workers) == 2 and all(worker.closed for worker in workers)


def test_every_workload_is_compared(workers: list[Scripted]) -> None:
    assert set(comparing.CHECKED) == set(WORKLOADS)
    check = Setup("model", "", "float32", 1, 128, 4)
    found = Comparison(plan(["yaie", "generate"], list(WORKLOADS), check), print).run()
    assert [each["workload"] for each in found["agreement"]] == list(WORKLOADS)


@pytest.mark.parametrize("runs", [0, 1, 2, 3, 4, 5])
def test_after_the_end_no_workload_and_no_check_begins(
    workers: list[Scripted], monkeypatch: pytest.MonkeyPatch, runs: int
) -> None:
    """Whatever runs when the time is up, what was not begun is left out, and said to be."""
    monkeypatch.setattr(comparing.Rules, "over", property(lambda _: sum(len(each.seen) for each in workers) >= runs))
    names, check = ["W1", "W4"], Setup("model", "", "float32", 1, 128, 4)
    found = Comparison(plan(["yaie"], names, check), print).run()
    made = [0, 1][runs >= 2] + [0, 1][runs >= 4]
    measured = [workload for workload in found["workloads"] if workload["rows"]]
    assert len(measured) == made and sum(len(each.seen) for each in workers) == runs
    assert all("skipped" in workload for workload in found["workloads"][made:]) and not wrong(found)
    assert len(workers) == 1 + (runs > 4)
    assert all(each["problem"] == comparing.TIME_IS_UP for each in found["agreement"])
