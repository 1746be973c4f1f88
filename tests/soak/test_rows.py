"""Small sizes of the rows that are written here, and what makes them red."""

from __future__ import annotations

import random
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from tests.engine.fakes import Formula
from tests.fault.cancels import STATES, Storm
from tests.property.shadow import ShadowEngine
from tests.soak import abuse, cancels, doubling, greedy, machine, mixed, overload, readers, records
from tests.soak.figure import Figure
from tests.store import test_record
from yaie_engine.errors import InvariantError

SEED = 5


def green(figure: Figure) -> Figure:
    """It did something and nothing was wrong."""
    print(f"seed {SEED}: {figure}")
    assert figure.faults == () and figure.skipped == "" and figure.size and figure.figure
    return figure


def test_state_machine_and_drains() -> None:
    checks = int(green(machine.state_machine(5, SEED)).figure.split()[0])
    assert checks > 20
    assert green(machine.liveness(5, SEED)).size != "0 drains"


def test_a_breach_is_red(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: ShadowEngine) -> None:
        raise InvariantError(["planted"])

    monkeypatch.setattr(ShadowEngine, "check", broken)
    assert "planted" in machine.state_machine(2, SEED).faults[0]


def test_steps_without_work_are_red(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = ShadowEngine(4, 2)
    engine.add([0, 1], max_tokens=4, sample=lambda _: 0)
    monkeypatch.setattr(ShadowEngine, "step", lambda *_, **__: SimpleNamespace(batch=[]))
    with pytest.raises(AssertionError, match="11 steps, 0 tokens"):
        machine.drained(engine, machine.Counts())


def test_a_lost_end_a_leak_or_a_late_block_is_red(monkeypatch: pytest.MonkeyPatch) -> None:
    met = Counter(dict.fromkeys(STATES, 1))
    for wrong in ({"lost": 1}, {"leaked": ["block 3"]}, {"slowest": 3}, {"wrong": ["r1"]}, {"cancels": Counter()}):
        storm = Storm(SEED, **{"cancels": met, **wrong})
        monkeypatch.setattr(cancels, "storm", lambda *_, storm=storm: storm)
        assert cancels.random_cancels(2, SEED).faults, wrong
    monkeypatch.setattr(cancels, "storm", lambda *_: Storm(SEED, met))
    assert green(cancels.random_cancels(2, SEED)).size == f"{2 * len(STATES)} cancels"


def test_greedy_answers_are_those_of_transformers() -> None:
    assert green(greedy.greedy_equality(4, SEED)).size == "4 prompts x 6"


def test_other_tokens_are_a_difference_unless_it_was_a_near_tie() -> None:
    sure, close = greedy.Answer([1, 2, 3], [1.0] * 3), greedy.Answer([1, 2, 3], [1.0, 1e-6, 1.0])
    assert greedy.compare([1, 2, 3], sure) == "equal" and greedy.compare([1, 9, 3], close) == "tie"
    assert all("is not" in greedy.compare(got, sure) for got in ([1, 9, 3], [1, 2], [1, 2, 3, 4], []))


def test_a_model_that_says_something_else_is_red(monkeypatch: pytest.MonkeyPatch) -> None:
    def other(_: Any, prompt: list[int], most: int) -> greedy.Answer:
        return greedy.Answer(Formula(259).greedy(prompt, most), [1.0] * most)

    monkeypatch.setattr(greedy, "plain", other)
    monkeypatch.setattr(greedy, "ENGINES", {"one block size": greedy.ENGINES["one block size"]})
    assert "is not" in greedy.greedy_equality(2, SEED).faults[0]


def test_twice_as_much_work_costs_twice() -> None:
    green(doubling.doubling(128, SEED))


def test_quadratic_work_is_red(monkeypatch: pytest.MonkeyPatch) -> None:
    def planted(size: int, chance: random.Random) -> doubling.Work:
        tree = doubling.filled(2, chance).scheduler.tree
        return lambda: [tree.match([1]) for _ in range(size * size // 64)]

    monkeypatch.setattr(doubling, "OPS", {"planted": planted})
    assert doubling.doubling(256, SEED).faults[0].startswith("planted: ")


def test_damaged_records_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    green(records.damaged_records(300, SEED))
    monkeypatch.setattr(test_record.record, "check_body", lambda *_: None)
    assert "accepted" in records.damaged_records(300, SEED).faults[0]


def test_too_many_clients() -> None:
    assert "told to come back, 0 otherwise" in green(overload.overload(1, SEED)).figure


def test_clients_that_do_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "WINDOW_S", 0.1)
    monkeypatch.setattr(readers, "SEND_TIMEOUT", 0.3)
    assert " cancelled, " in green(readers.bad_readers(1, SEED)).figure


def test_bytes_that_no_honest_client_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(abuse, "NAMED", dict(random.Random(SEED).sample(sorted(abuse.NAMED.items()), 20)))
    found = green(abuse.abuse(52, SEED))
    assert "named: " in found.figure and "stalled: 1 x " in found.figure and "loop lag: median" in found.times


def test_a_wrong_answer_to_an_attack_is_red(monkeypatch: pytest.MonkeyPatch) -> None:
    data, _ = abuse.CASES["no host"]
    monkeypatch.setattr(abuse, "NAMED", {"no host": (data, [200])})
    monkeypatch.setattr(abuse, "get", lambda *_: SimpleNamespace(status_code=503))
    assert set(abuse.abuse(4, SEED).faults) == {
        "named attack 'no host' got [400], not [200]",
        "/health said 503",
    }
    table = abuse.Table()
    table.add(abuse.Attack("mixed", "", b"x"), [400, 500, 501])
    table.add(abuse.Attack("stalled", "no byte", b"", [], stalls=True), [408])
    assert table.faults == ["500 for b'x'", "stalled attack 'no byte' got [408], not []"]
    assert table.told == "mixed: 1 x 400, 1 x 500, 1 x 501; stalled: 1 x 408"


def test_a_mixed_load(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, small in {"REQUESTS": 2, "HEADS": mixed.HEADS[:2], "TAILS": mixed.TAILS[:2]}.items():
        monkeypatch.setattr(mixed, name, small)
    assert green(mixed.mixed(1, SEED)).size == "16 requests"
    threads, descriptors = mixed.census()
    assert mixed.grown((threads, descriptors)) == []
