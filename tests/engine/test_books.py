"""Scheduler, tree and door without a model: what a failed step leaves behind, and work that does not grow."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

import pytest

from yaie_engine.door import Door
from yaie_engine.invariants import violations
from yaie_engine.scheduler import Scheduler
from yaie_engine.sequence import Sequence
from yaie_engine.step_limits import Limits


class Books:
    """A scheduler that is driven without an engine; every sequence says 5, 5, 5, ..."""

    def __init__(self, num_blocks: int = 64, block_size: int = 4, limits: Limits | None = None) -> None:
        self.scheduler = Scheduler(num_blocks, block_size, limits or Limits(4096, 4096))
        self.count = 0

    def add(self, prompt: list[int], max_tokens: int = 2, **kind: Any) -> Sequence:
        seq = Sequence(self.count, f"r{self.count}", list(prompt), len(prompt), max_tokens, **kind)
        self.count += 1
        self.scheduler.add(seq)
        return seq

    def step(self) -> None:
        plan = self.scheduler.schedule()
        self.scheduler.complete(plan, [5] * len(plan.sampling))

    def run(self, prompt: list[int], **kind: Any) -> Sequence:
        seq = self.add(prompt, **kind)
        while not seq.num_output_tokens:
            self.step()
        self.scheduler.finish(seq, "finished")
        return seq

    def check(self) -> None:
        assert violations(self.scheduler) == []


def test_the_runner_hears_of_every_released_sequence() -> None:
    """Also when the step that was to tell it failed before it ran."""
    books = Books()
    gone, stays = books.add([1, 2, 3]), books.add([4, 5, 6])
    books.step()
    books.scheduler.finish(gone, "cancelled")
    plan = books.scheduler.schedule()
    assert plan.released == [gone.seq_id]
    books.scheduler.abort(plan)
    again = books.scheduler.schedule()
    assert set(again.released) == {gone.seq_id, stays.seq_id}
    books.scheduler.complete(again, [5])
    assert books.scheduler.schedule().released == []


def test_a_step_without_a_batch_keeps_its_news() -> None:
    books = Books()
    gone = books.add([1, 2, 3])
    books.step()
    books.scheduler.finish(gone, "cancelled")
    assert not books.scheduler.schedule().batch
    books.add([4])
    assert books.scheduler.schedule().released == [gone.seq_id]


def test_rebuilding_keeps_the_requests() -> None:
    books = Books()
    books.run(list(range(10)))
    running = [books.add([1, 2, 3, i], 6, namespace="own", private=True) for i in range(3)]
    books.step()
    waiting = books.add([9, 9])
    largest = max(node.id for node in books.scheduler.tree.nodes())
    books.scheduler.pool.owner[0] = None
    books.scheduler.pool.ref_count[1] += 3
    assert violations(books.scheduler)
    books.scheduler.rebuild(without=running[1])
    books.check()
    assert books.scheduler.waiting == [running[0], running[2], waiting] and not books.scheduler.running
    assert books.scheduler.pool.num_free == books.scheduler.pool.total
    while books.scheduler.waiting or any(seq.num_output_tokens < 3 for seq in books.scheduler.running):
        books.step()
        books.check()
    assert all(node.id > largest for node in books.scheduler.tree.nodes() if node.parent), "ids come once"
    for seq in (*books.scheduler.running,):
        books.scheduler.finish(seq, "finished")
    books.check()
    assert not books.scheduler.private


def test_a_row_without_a_token_is_not_published() -> None:
    books = Books()
    bad, good = books.add(list(range(6))), books.add([50, 51])
    plan = books.scheduler.schedule()
    books.scheduler.complete(plan, [None if entry.seq is bad else 5 for entry in plan.sampling])
    books.scheduler.finish(bad, "failed")
    books.check()
    assert books.run(list(range(6))).num_cached_tokens == 0
    books.scheduler.finish(good, "finished")


@pytest.mark.parametrize(("held", "left"), [(False, 8), (True, 12)])
def test_discarding_goes_back_to_what_others_use(held: bool, left: int) -> None:
    """A path is cut back to where another branches off, or to what a running sequence holds."""
    books = Books()
    head = list(range(8))
    books.run([*head, 20, 21, 22, 23, 24])
    books.run([*head, 30])
    holder = books.add([*head, 20, 21, 22, 23, 60], 4) if held else None
    if holder is not None:
        books.step()
    books.scheduler.tree.discard([*head, 20, 21, 22, 23, 24], "")
    books.check()
    match = books.scheduler.tree.match([*head, 20, 21, 22, 23, 24])
    assert match.end == left
    books.scheduler.tree.discard([1, 2, 3], "nobody")
    if holder is not None:
        books.scheduler.finish(holder, "finished")
    books.check()


def test_queue_entries_of_dead_nodes_are_swept() -> None:
    books = Books(4000)
    for i in range(2000):
        books.run([i, i + 1, i + 2], namespace=f"own{i}", private=True)
    assert len(books.scheduler.tree._lru) <= 65 and books.scheduler.pool.num_free == 4000
    books.check()


def test_the_door_counts_who_has_to_wait() -> None:
    door = Door(2)
    door.entered = 3
    assert door.num_waiting == 1, "two slots are free"
    door.seen, door.left = 3, 2
    door.look(2)
    assert door.num_waiting == 1
    door.entered = 4
    assert door.num_waiting == 2
    door.free(1)
    assert door.num_waiting == 2, "the one that waits comes first"
    door.seen, door.left = 4, 4
    door.look(2)
    assert door.num_waiting == 0
    door.entered = 5
    assert door.num_waiting == 1
    door.free(0)
    assert door.num_waiting == 0


# ---- work that does not grow: function calls are counted, so that a busy machine makes no difference


def calls(action: Callable[[], object]) -> int:
    count = 0

    def note(frame: Any, event: str, arg: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(before)
    return count


def planted_tree(nodes: int) -> tuple[Books, list[list[int]]]:
    """A tree of about so many nodes, branching everywhere, in a pool with room to spare."""
    rng = random.Random(0)
    books = Books(nodes * 6, 16)
    prompts: list[list[int]] = []
    while len(prompts) < nodes * 0.7:
        prompt = [rng.randrange(30) for _ in range(rng.randrange(1, 40))]
        if prompts and rng.random() < 0.6:
            other = rng.choice(prompts)
            prompt = other[: rng.randrange(1, len(other) + 1)] + prompt[:12]
        prompts.append(prompt)
        books.run(prompt)
    return books, prompts


def test_match_publish_and_evict_do_not_grow_with_the_tree() -> None:
    found: dict[str, list[float]] = {"match": [], "request": [], "evict": []}
    for nodes in (400, 800, 1600):
        books, prompts = planted_tree(nodes)
        tree = books.scheduler.tree
        found["match"].append(calls(lambda: [tree.match(prompt) for prompt in prompts]) / len(prompts))  # noqa: B023
        found["request"].append(calls(lambda: [books.run([*p[:9], 77]) for p in prompts[:200]]) / 200)  # noqa: B023
        number = nodes // 2  # an entry that is out of date is queued again once: what counts is the mean
        found["evict"].append(calls(lambda: [tree.evict_one() for _ in range(number)]) / number)  # noqa: B023
        books.check()
    for name, (small, middle, large) in found.items():
        assert middle < 1.5 * small and large < 1.5 * middle, (name, small, middle, large)


def test_a_step_is_linear_in_what_runs() -> None:
    found = []
    for number in (32, 64, 128, 256):
        books = Books(number * 10)
        for i in range(number):
            books.add([i] * 6, 20)
        books.step()
        found.append(calls(lambda: [books.step() for _ in range(5)]) / number)  # noqa: B023
    assert max(found) < 1.5 * min(found), found


def test_a_long_answer_costs_the_same_at_every_token() -> None:
    books = Books(2000)
    books.add([1], 5000)
    first = calls(lambda: [books.step() for _ in range(100)])
    for _ in range(3000):
        books.step()
    assert calls(lambda: [books.step() for _ in range(100)]) <= first + 50
