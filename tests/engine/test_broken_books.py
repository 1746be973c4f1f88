"""What the checks of the books say when a rule is broken, each damage by its own words, and at what cost they look."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.engine.conftest import CHEAP
from tests.engine.fakes import LONG, Formula, eventually, greedy, swap_runner
from tests.engine.models import VOCAB
from tests.engine.test_books import Books
from yaie_engine import LLM, EngineDeadError, InvariantError, SamplingParams
from yaie_engine.engine import LLMEngine
from yaie_engine.engine_check import all_violations, engine_violations
from yaie_engine.invariants import violations
from yaie_engine.request import Request
from yaie_engine.sequence import Sequence
from yaie_engine.snapshot import EngineSnapshot
from yaie_engine.step_limits import Limits
from yaie_engine.view import copy_of

# ---- the engine's side: requests, door and snapshot


@pytest.fixture(scope="module")
def busy(folder: Path) -> Iterator[LLMEngine]:
    """An engine that stands still between two steps: one request decodes, one waits, and one prompt is cached."""
    hold = threading.Event()
    with LLM(str(folder), **CHEAP, max_num_seqs=1) as llm:
        formula = swap_runner(llm, Formula(VOCAB).runner)
        llm.submit([1, 2, 3, 4, 5], greedy(2)).result(LONG)
        there = threading.Event()

        def wait() -> None:
            llm._engine._catch_up()
            there.set()
            hold.wait(LONG)

        def stop(plan: Any) -> None:
            if formula.steps == 6:
                llm._engine._inbox.put(wait)

        formula.before = stop
        both = threading.Event()
        llm._engine._inbox.put(partial(both.wait, LONG))  # type: ignore[arg-type]
        handles = [llm.submit([7, 8, 9, 10, 11, i], greedy(20)) for i in range(2)]
        both.set()
        assert there.wait(LONG)
        yield llm._engine
        hold.set()
        assert all(handle.result(LONG).error is None for handle in handles)
        llm.check()


def requests(engine: LLMEngine) -> list[Request]:
    return list(engine.requests.values())


def _forgotten(engine: LLMEngine, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(engine, "_by_sequence", dict(list(engine._by_sequence.items())[1:]))


def _unknown(engine: LLMEngine, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(engine, "requests", dict(list(engine.requests.items())[1:]))


def _misfiled(engine: LLMEngine, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(requests(engine)[0], "request_id", "another")


def _silent(engine: LLMEngine, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(requests(engine)[0].choices[0], "finish_reason", "stop")


def _early(engine: LLMEngine, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(requests(engine)[1].channel, "_ended", True)


def _lost(engine: LLMEngine, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(requests(engine)[0].choices[0], "delivered", requests(engine)[0].choices[0].delivered - 1)


def _twice(engine: LLMEngine, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(requests(engine)[0].choices[0], "delivered", requests(engine)[0].choices[0].delivered + 1)


def _door(engine: LLMEngine, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(engine._door, "seen", engine._door.seen + 1)


def _counts(engine: LLMEngine, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(engine.scheduler.pool, "_held", 100)


def _tree(engine: LLMEngine, patch: pytest.MonkeyPatch) -> None:
    leaf = list(engine.scheduler.tree.nodes())[-1]
    patch.setattr(leaf, "blocks", [*leaf.blocks, *range(30)])


def seen(change: Callable[[EngineSnapshot], EngineSnapshot]) -> Callable[[LLMEngine, pytest.MonkeyPatch], None]:
    def damage(engine: LLMEngine, patch: pytest.MonkeyPatch) -> None:
        patch.setattr("yaie_engine.engine_check.copy_of", lambda engine: change(copy_of(engine)))

    return damage


def larger(now: EngineSnapshot) -> EngineSnapshot:
    return replace(now, blocks=replace(now.blocks, total=now.blocks.total + 1, cached=now.blocks.cached + 1))


def emptier(now: EngineSnapshot) -> EngineSnapshot:
    return replace(now, blocks=replace(now.blocks, free=now.blocks.free - 1, cached=now.blocks.cached + 1))


def queued(now: EngineSnapshot) -> EngineSnapshot:
    return replace(now, queue=replace(now.queue, waiting=now.queue.waiting + 1))


def renamed(now: EngineSnapshot) -> EngineSnapshot:
    return replace(now, requests=(replace(now.requests[0], request_id="another"), *now.requests[1:]))


BROKEN: list[tuple[Callable[[LLMEngine, pytest.MonkeyPatch], None], str]] = [
    (_forgotten, "the engine and the scheduler know different sequences"),
    (_forgotten, "the engine serves other sequences than its requests have"),
    (_unknown, "the engine serves other sequences than its requests have"),
    (_unknown, r"they cannot be read to the end \(KeyError\('req-1'\)\)"),
    (_misfiled, r"another is filed as \S+"),
    (_silent, r"\S+ has ended and was not answered"),
    (_early, r"\S+ was answered before it ended"),
    (_lost, r"\S+ has (\d+) tokens, \d+ were delivered"),
    (_twice, r"\S+ has (\d+) tokens, \d+ were delivered"),
    (_door, "2 requests are counted as new, 1 are"),
    (_counts, r"the snapshot counts \d+ \+ 100 \+ -\d+ of 32 blocks"),
    (_tree, "the snapshot's tree owns more blocks than are cached or held"),
    (seen(larger), "the snapshot shows another pool"),
    (seen(emptier), "the snapshot shows another pool"),
    (seen(queued), "the snapshot shows 3 sequences, 2 live"),
    (seen(renamed), "the snapshot shows 2 sequences, 2 live"),
]


@pytest.mark.parametrize(("damage", "said"), BROKEN, ids=lambda one: one if isinstance(one, str) else "")
def test_each_broken_rule_of_requests_is_seen(
    busy: LLMEngine,
    monkeypatch: pytest.MonkeyPatch,
    damage: Callable[[LLMEngine, pytest.MonkeyPatch], None],
    said: str,
) -> None:
    assert all_violations(busy) == []
    with monkeypatch.context() as patch:
        damage(busy, patch)
        found = all_violations(busy)
    assert any(re.fullmatch(said, one) for one in found), found
    assert all_violations(busy) == []


def test_what_the_engine_finds_of_its_requests_is_a_breach(folder: Path, tmp_path: Path) -> None:
    """Also of an engine whose blocks and tree are right."""
    with LLM(str(folder), **CHEAP) as llm, pytest.MonkeyPatch.context() as patch:
        patch.setattr("tempfile.tempdir", str(tmp_path))
        llm._engine.call(partial(setattr, llm._engine._door, "seen", 5))
        with pytest.raises(InvariantError, match="5 requests are counted as new, 0 are"):
            llm.check()
        eventually(lambda: llm.state == "failed")


def test_books_that_cannot_be_read_are_a_breach(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check stumbles over them, and that is not the caller's mistake: nothing more is served."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with LLM(str(folder), **CHEAP) as llm:
        llm.generate([[1, 2, 3, 4, 5]], greedy(2), use_tqdm=False)

        def damage() -> None:
            list(llm._scheduler.tree.nodes())[-1].blocks[-1] = 1000

        llm._engine.call(damage)
        with pytest.raises(InvariantError, match=r"they cannot be read to the end \(IndexError"):
            llm.check()
        eventually(lambda: llm.state == "failed")


# ---- a plan and its budget


class Plan:
    """A step in flight: `decodes` sequences with one token, and prompts of these lengths, planned as they are."""

    def __init__(self, decodes: int, prompts: list[int], chunked: bool, budget: int) -> None:
        books = Books(400, 4, Limits(4096, 4096, chunked_prefill=chunked, shared_prefill=0))
        for i in range(decodes):
            books.add([i], 9)
        if decodes:
            books.step()
        for i, length in enumerate(prompts):
            books.add([100 + i] * length, 9)
        books.scheduler.schedule()
        books.check()
        self.scheduler = books.scheduler
        self.scheduler.limits = replace(self.scheduler.limits, max_num_batched_tokens=budget)


@pytest.mark.parametrize(
    ("decodes", "prompts", "chunked", "right"),
    [
        (0, [90], True, False),
        (0, [90], False, True),
        (8, [90], False, True),
        (9, [90], False, False),
        (0, [90, 2], False, False),
        (0, [5, 4], False, False),
        (0, [5, 4], True, False),
        (3, [5], True, True),
        (8, [], True, True),
        (9, [], True, False),
        (30, [], False, False),
    ],
)
def test_only_a_prompt_that_must_go_in_whole_is_over_the_budget(
    decodes: int, prompts: list[int], chunked: bool, right: bool
) -> None:
    scheduler = Plan(decodes, prompts, chunked, budget=8).scheduler
    total = decodes + sum(prompts)
    assert violations(scheduler) == ([] if right else [f"{total} tokens are planned, at most 8 may be"])


def test_a_part_of_a_prompt_is_not_a_whole_one() -> None:
    scheduler = Plan(0, [90], False, budget=8).scheduler
    scheduler._planned[scheduler.running[0]] = 40
    assert "40 tokens are planned, at most 8 may be" in violations(scheduler)


# ---- what is said, and at what cost


def test_no_message_and_no_report_of_broken_books_tells_a_salt(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with LLM(str(folder), **CHEAP) as llm:
        for salt in ("sesame-1", "sesame-2"):
            llm.generate([[1, 2, 3, 4, 5]], SamplingParams(max_tokens=2, cache_salt=salt), use_tqdm=False)

        def damage() -> None:
            first, second = (llm._scheduler.tree.roots[f"salt:sesame-{i}"] for i in (1, 2))
            first.start, second.children = 3, {}

        llm._engine.call(damage)
        with pytest.raises(InvariantError, match=r"the root of 'salt:[0-9a-f]{8}' is not empty") as found:
            llm.check()
        eventually(lambda: llm.state == "failed")
        with pytest.raises(EngineDeadError) as refused:
            llm.submit([1])
    assert "the empty root of 'salt:" in str(found.value)
    (report,) = tmp_path.glob("yaie-breach-*.json")
    assert len(json.loads(report.read_text())["violations"]) >= 2
    for text in (str(found.value), str(refused.value), report.read_text(), caplog.text):
        assert text and "sesame" not in text


class Queue(list[Sequence]):
    """A queue that nobody may search."""

    def __contains__(self, _: object) -> bool:
        raise AssertionError("a queue is searched for one sequence")

    def index(self, *_: Any) -> int:
        raise AssertionError("a queue is searched for one sequence")

    count = index


def test_a_check_searches_no_queue(busy: LLMEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it is quadratic in who waits."""
    scheduler = busy.scheduler
    monkeypatch.setattr(scheduler, "waiting", Queue(scheduler.waiting))
    monkeypatch.setattr(scheduler, "running", Queue(scheduler.running))
    held: dict[Sequence, list[int]] = {seq: [] for seq in scheduler.waiting}
    monkeypatch.setattr(scheduler.host, "_held", held)
    found = [*violations(scheduler), *engine_violations(busy)]
    assert found == [f"host blocks are held for {seq.label}, which does not wait for them" for seq in held]


@pytest.mark.parametrize(("queue", "state"), [("waiting", "running"), ("running", "waiting")])
def test_who_is_in_the_wrong_queue_is_named(queue: str, state: str) -> None:
    books = Books(limits=Limits(4096, 1, shared_prefill=0))
    for prompt in ([1, 2, 3], [4, 5, 6]):
        books.add(prompt)
    books.step()
    seq = getattr(books.scheduler, queue)[0]
    seq.state = state
    assert f"{seq.label} is {state} in the wrong queue" in violations(books.scheduler)
