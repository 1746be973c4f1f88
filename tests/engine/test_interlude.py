"""What happens to the cache between two steps is recorded too: views that follow the steps see it at once."""

from __future__ import annotations

import pytest

from tests.engine.conftest import Make
from tests.engine.fakes import ask, assert_idle, eventually, greedy
from yaie_engine import LLM, AsleepError
from yaie_engine.tape import Frame

PROMPT = list(range(1, 30))


def last_frame(llm: LLM) -> Frame:
    *_, frame = llm.tape().frames()
    return frame


def assert_frame_is_what_is(llm: LLM) -> None:
    """Tree and tables of the newest frame are those of the engine."""
    frame, tree = last_frame(llm), llm._scheduler.tree
    nodes = {node.id: (node.token_ids, node.blocks) for node in tree.nodes() if node.parent is not None}
    assert {i: (state.token_ids, state.blocks) for i, state in frame.nodes.items()} == nodes
    assert frame.tables.keys() == {seq.label for seq in llm._scheduler.running} and frame.step == llm.step


@pytest.mark.usefixtures("overlap")
def test_a_reset_shows_at_once(make_llm: Make) -> None:
    llm = make_llm()
    ask(llm, PROMPT)
    before = llm.step
    assert last_frame(llm).nodes
    freed = llm.reset()
    increment = llm.steps_since(before)
    record = increment.records[0]
    assert len(record.blocks.freed) == freed > 0 and record.batch == () and not record.blocks.evicted
    assert increment.changes[0].tree.removed and last_frame(llm).nodes == {}
    assert len(increment.records) == 1 and llm.step == before + 1
    llm.reset()
    assert llm.step == before + 1, "of nothing there is no record"
    assert_frame_is_what_is(llm)


@pytest.mark.usefixtures("overlap")
def test_a_sleep_shows_at_once(make_llm: Make) -> None:
    llm = make_llm(num_cpu_blocks=32)
    ask(llm, PROMPT)
    before = llm.step
    llm.sleep(1)
    increment = llm.steps_since(before)
    assert increment.state == "asleep" and len(increment.records) == 1 and last_frame(llm).nodes == {}
    with pytest.raises(AsleepError):
        llm.submit(PROMPT, greedy())
    llm.wake_up()
    assert llm.step == before + 1
    ask(llm, PROMPT)
    assert_frame_is_what_is(llm)


def test_a_sleep_that_cancels_leaves_no_table_behind(make_llm: Make) -> None:
    llm = make_llm()
    handle = llm.submit(PROMPT, greedy(90, ignore_eos=True))
    next(iter(handle))
    llm.sleep(1, force=True)
    frame = last_frame(llm)
    assert frame.tables == {} and frame.nodes == {} and frame.waiting == {}


@pytest.mark.usefixtures("overlap")
def test_the_blocks_of_a_cancelled_request_are_given_back_at_once(make_llm: Make) -> None:
    llm = make_llm()
    handle = llm.submit(PROMPT, greedy(90, ignore_eos=True))
    next(iter(handle))
    handle.cancel()
    handle.wait(60)
    eventually(lambda: not last_frame(llm).tables)
    assert_idle(llm)
    assert_frame_is_what_is(llm)


def test_a_request_that_never_ran_leaves_the_queue(make_llm: Make) -> None:
    """It comes and goes between two steps."""
    llm = make_llm()
    ask(llm, PROMPT)
    handle = llm.submit(PROMPT, greedy())
    handle.cancel()
    handle.wait(60)
    ask(llm, [5, 6, 7])
    assert last_frame(llm).waiting == {}
    assert_frame_is_what_is(llm)


def test_while_something_runs_its_next_step_tells(make_llm: Make) -> None:
    llm = make_llm(num_blocks=64)
    ask(llm, PROMPT)
    handle = llm.submit([200, 201], greedy(150, ignore_eos=True))
    next(iter(handle))
    llm.reset()
    handle.result(60)
    assert all(step.batch for step in llm.snapshot().steps)
    assert_frame_is_what_is(llm)
