"""Handles of running requests: iterating, waiting, leaving, in threads and in an event loop."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Iterator

import pytest

from tests.engine.conftest import Make
from tests.engine.fakes import LONG, FakeRunner, ask, assert_idle, eventually, greedy, swap_runner, tokens
from tests.engine.models import VOCAB, Reference
from yaie_engine import LLM, Generation, QueueFullError, SamplingParams

ENDLESS = greedy(120, ignore_eos=True)


class Gate:
    """A fake model that runs a step whenever it is let."""

    def __init__(self, llm: LLM) -> None:
        self.steps = threading.Semaphore(0)
        self.open = threading.Event()
        first = llm.tokenize("A")[0]
        swap_runner(llm, FakeRunner(VOCAB, lambda seq: {first + seq.num_output_tokens % 26: 9.0}, before=self.wait))

    def wait(self, plan: object) -> None:
        while not self.open.is_set() and not self.steps.acquire(timeout=0.005):
            pass

    def let(self, steps: int) -> None:
        self.steps.release(steps)


@pytest.fixture
def gate(llm: LLM) -> Iterator[Gate]:
    found = Gate(llm)
    yield found
    found.open.set()


def test_deltas_come_while_it_runs(llm: LLM, gate: Gate) -> None:
    handle = llm.submit([1], greedy(3))
    assert not handle.done
    deltas = iter(handle)
    for expected in "ABC":
        gate.let(1)
        assert next(deltas) == expected
    assert list(deltas) == [] and list(handle) == []
    assert handle.result(LONG).outputs[0].text == "ABC" and handle.done and handle.wait(0)


def test_choices_are_told_apart(llm: LLM) -> None:
    handle = llm.submit([1, 2, 3], SamplingParams(n=3, max_tokens=6, seed=4, temperature=1.2))
    texts = ["", "", ""]
    for item in handle:
        assert isinstance(item, tuple)
        index, delta = item
        texts[index] += delta
    assert texts == [choice.text for choice in handle.result(LONG).outputs]


def test_waiting_in_vain_cancels_nothing(llm: LLM, gate: Gate) -> None:
    handle = llm.submit([1], greedy(4))
    for timeout in (0, 0.02):
        with pytest.raises(TimeoutError, match=handle.request_id):
            handle.result(timeout)
        assert handle.wait(timeout) is False and not handle.done
    gate.open.set()
    output = handle.result(LONG)
    assert output.outputs[0].finish_reason == "length" and handle.result() is output


@pytest.mark.parametrize("way", ["cancel", "close", "with", "drop", "by id"])
def test_leaving_a_request_cancels_it(llm: LLM, way: str) -> None:
    before = llm.snapshot().counters.requests.get("cancelled", 0)
    handle: Generation | None = llm.submit([1, 2, 3], ENDLESS)
    assert handle is not None and next(iter(handle))
    if way == "drop":
        handle = None
        gc.collect()
    elif way == "with":
        with handle:
            pass
    elif way == "by id":
        assert llm.cancel(handle.request_id) == 1 and llm.cancel("no such id") == 0
    else:
        getattr(handle, way)()
    if handle is not None:
        output = handle.result(LONG)
        assert output.outputs[0].finish_reason == "cancelled" and output.error is None
        assert "".join(map(str, handle)) in output.outputs[0].text
        handle.cancel()  # once more does nothing
    assert_idle(llm)
    assert llm.snapshot().counters.requests["cancelled"] == before + 1


def test_cancel_all(llm: LLM) -> None:
    handles = [llm.submit([i, 2, 3], greedy(100, ignore_eos=True)) for i in range(4)]
    assert llm.cancel() == 4
    assert {handle.result(LONG).outputs[0].finish_reason for handle in handles} == {"cancelled"}


@pytest.mark.parametrize("state", ["waiting", "prefill", "decode", "preempted"])
@pytest.mark.parametrize("n", [1, 2])
def test_cancelled_in_every_state(make_llm: Make, state: str, n: int) -> None:
    """Two sequences of 25 blocks do not fit into 32: the later one is preempted in the end."""
    llm = make_llm(max_num_seqs=1 if state == "waiting" else 4)
    swap_runner(llm, FakeRunner(VOCAB, lambda seq: {70: 1.0}, before=lambda plan: time.sleep(0.004)))
    first = llm.submit(list(range(40)), greedy(61))
    second = llm.submit(list(range(100, 140)), SamplingParams(n=n, temperature=0, max_tokens=61))

    def reached() -> bool:
        views = llm.snapshot().requests
        return any(view.state == state and view.request_id.startswith(second.request_id) for view in views)

    eventually(reached)
    second.cancel()
    output = second.result(LONG)
    assert {choice.finish_reason for choice in output.outputs} == {"cancelled"} and len(output.outputs) == n
    assert first.result(LONG).outputs[0].finish_reason == "length"
    assert_idle(llm)


def test_text_held_back_is_delivered_on_cancel(llm: LLM, gate: Gate) -> None:
    handle = llm.submit([1], greedy(20, stop=["ABCX"]))
    gate.let(3)
    eventually(lambda: gate.steps._value == 0)
    handle.cancel()
    gate.open.set()
    output = handle.result(LONG)
    assert 2 <= len(tokens(output)) <= 4, "the step in flight may still count"
    assert output.outputs[0].text == "ABCD"[: len(tokens(output))]
    assert "".join(map(str, handle)) == output.outputs[0].text


def test_the_queue_has_an_end(make_llm: Make) -> None:
    """One runs, two wait, the fourth is refused: whether or not the engine looked at its inbox in between."""
    llm = make_llm(max_num_seqs=1, max_waiting=2)
    gate = Gate(llm)
    for _ in range(20):
        gate.open.clear()
        handles = [llm.submit([i], greedy(2)) for i in range(3)]
        with pytest.raises(QueueFullError, match="2 requests wait already, max_waiting is 2"):
            llm.submit([7], greedy(2))
        gate.open.set()
        assert all(handle.result(LONG).error is None for handle in handles)
        eventually(lambda: not llm.running())
    assert_idle(llm)


def test_a_full_queue_opens_again_when_a_waiting_request_is_cancelled(make_llm: Make) -> None:
    llm = make_llm(max_num_seqs=1, max_waiting=1)
    gate = Gate(llm)
    running, waiting = llm.submit([1], greedy(2)), llm.submit([2], greedy(2))
    with pytest.raises(QueueFullError):
        llm.submit([3], greedy(2))
    waiting.cancel()
    gate.let(1)
    eventually(lambda: waiting.done)
    third = llm.submit([3], greedy(2))
    gate.open.set()
    assert running.result(LONG).error is None and third.result(LONG).error is None


def test_stream_in_a_running_loop(llm: LLM, reference: Reference) -> None:
    async def read(start: int) -> str:
        return "".join([delta async for delta in llm.stream([start, 2, 3], greedy(12))])

    async def main() -> list[str]:
        return list(await asyncio.gather(*(read(i) for i in range(4))))

    for i, text in enumerate(asyncio.run(main())):
        assert text == ask(llm, [i, 2, 3]).outputs[0].text
        assert tokens(ask(llm, [i, 2, 3])) == reference.greedy([i, 2, 3], 12)


@pytest.mark.parametrize("way", ["break", "task", "aclose", "handle"])
def test_leaving_a_stream_cancels(llm: LLM, way: str) -> None:
    async def some(stream: object) -> None:
        async for delta in stream:  # type: ignore[attr-defined]
            assert delta
            if way != "task":
                break

    async def main() -> None:
        if way == "handle":
            await some(llm.submit([1, 2, 3], ENDLESS))
        elif way == "task":
            task = asyncio.create_task(some(llm.stream([1, 2, 3], ENDLESS)))
            await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        else:
            stream = llm.stream([1, 2, 3], ENDLESS)
            await some(stream)
            if way == "aclose":
                await stream.aclose()  # type: ignore[attr-defined]
            del stream
        end = time.monotonic() + LONG
        while llm.running():
            assert time.monotonic() < end
            await asyncio.sleep(0.005)

    before = llm.snapshot().counters.requests.get("cancelled", 0)
    asyncio.run(main())
    assert_idle(llm)
    assert llm.snapshot().counters.requests["cancelled"] == before + 1


def test_a_handle_is_read_in_two_loops(llm: LLM, gate: Gate) -> None:
    """The second loop starts where the first one left the queue, and ends."""
    handle = llm.submit([1], greedy(6))
    gate.let(2)

    async def first() -> str:
        async for delta in handle:
            return str(delta)
        return ""

    async def rest() -> str:
        return "".join([str(delta) async for delta in handle])

    assert asyncio.run(first()) == "A"
    gate.open.set()
    assert "A" + asyncio.run(asyncio.wait_for(rest(), LONG)) == handle.result(LONG).outputs[0].text


def test_an_interrupt_while_generating_cancels_all(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(llm)
    waits = iter([True])

    def interrupted(self: Generation, timeout: float | None = None) -> bool:
        if next(waits, False):
            raise KeyboardInterrupt
        return self._channel.wait(timeout)

    monkeypatch.setattr(Generation, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        llm.generate([[1], [2], [3]], ENDLESS, use_tqdm=False)
    gate.open.set()
    assert_idle(llm)


def test_many_threads_ask_at_once(llm: LLM, reference: Reference) -> None:
    results: dict[int, list[int]] = {}

    def client(i: int) -> None:
        results[i] = tokens(ask(llm, [i, i + 1, i + 2], greedy(8)))

    threads = [threading.Thread(target=client, args=(i,)) for i in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG)
    assert results == {i: reference.greedy([i, i + 1, i + 2], 8) for i in range(12)}
