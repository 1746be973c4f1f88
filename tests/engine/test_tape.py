"""The tape of a live engine replays to what its snapshot shows."""

from __future__ import annotations

import threading
from itertools import pairwise

from tests.engine.conftest import Make
from tests.engine.fakes import LONG, eventually, greedy
from yaie_engine import LLM, SamplingParams
from yaie_engine.tape import Frame


def last_frame(llm: LLM) -> Frame:
    """The frame after the newest step."""
    *_, frame = llm.tape().frames()
    return frame


def assert_tree_equals_snapshot(llm: LLM) -> None:
    frame, roots = last_frame(llm), {node.id for node in llm.snapshot().tree if node.num_tokens == 0}
    shown = {node.id: node for node in llm.snapshot().tree if node.id not in roots}
    assert frame.nodes.keys() == shown.keys()
    for i, node in frame.nodes.items():
        assert tuple(node.token_ids) == shown[i].token_ids and tuple(node.blocks) == shown[i].blocks
        assert node.used_step == shown[i].last_used_step and node.namespace == shown[i].namespace


def test_tape_replays_to_the_snapshot_after_evictions_and_preemptions(make_llm: Make) -> None:
    llm = make_llm(num_blocks=14, recorder_steps=7)
    prompts = [[head, 1, 2, 3, *range(tail, tail + 6)] for head in (5, 6) for tail in (10, 20, 30)]
    llm.generate(prompts, greedy(20), use_tqdm=False)
    tape = llm.tape()
    assert len(tape.steps) == 7 and tape.base.step == tape.steps[0].step - 1
    assert [step.step for step in tape.steps] == [record.step for record in llm.snapshot().steps]
    assert_tree_equals_snapshot(llm)
    llm.check()


def test_tape_tells_the_life_of_every_request(make_llm: Make) -> None:
    llm = make_llm(num_blocks=400)
    first = llm.submit([1, 2, 3, 4, 5, 6, 7, 8, 9], greedy(4))
    first.result(LONG)
    second = llm.submit([1, 2, 3, 4, 5, 6, 7, 8, 9], greedy(3))
    second.result(LONG)
    eventually(lambda: not llm.snapshot().requests)
    steps = llm.tape().steps
    assert [label for step in steps for label in step.arrived] == [first.request_id, second.request_id]
    assert dict(pair for step in steps for pair in step.admitted) == {first.request_id: 0, second.request_id: 8}
    assert dict(pair for step in steps for pair in step.left) == {
        first.request_id: "finished",
        second.request_id: "finished",
    }
    assert all(a.at <= b.at for a, b in pairwise(steps))
    assert last_frame(llm).tables == {} and last_frame(llm).waiting == {}


def test_tape_hides_the_secret_of_a_cache_salt(make_llm: Make) -> None:
    llm = make_llm(num_blocks=400, recorder_steps=1)
    llm.generate([list(range(9))], SamplingParams(temperature=0, max_tokens=4, cache_salt="hunter2"), use_tqdm=False)
    assert_tree_equals_snapshot(llm)
    assert "hunter2" not in repr(llm.tape())


def test_tape_of_a_running_engine_may_be_asked_from_any_thread(make_llm: Make) -> None:
    llm = make_llm(num_blocks=400)
    handle = llm.submit([1, 2, 3], greedy(200))
    eventually(lambda: bool(llm.tape().steps))  # a frame is what a step left
    seen: list[int] = []
    threads = [threading.Thread(target=lambda: seen.append(last_frame(llm).step)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG)
    handle.cancel()
    assert len(seen) == 4


def test_tape_of_a_closed_engine_is_what_was_recorded(make_llm: Make) -> None:
    llm = make_llm(num_blocks=400)
    llm.generate([[1, 2, 3]], greedy(3), use_tqdm=False)
    llm.close()
    assert llm.tape().steps
