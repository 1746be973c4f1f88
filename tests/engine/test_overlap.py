"""Host work behind a running step: it really happens there, and nobody can tell from the results."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.engine.conftest import Make
from tests.engine.fakes import LONG, Formula, ask, assert_idle, greedy, tokens
from tests.engine.faults import Fault, planted
from tests.engine.late_device import late, waits_per_step
from tests.engine.models import EOS
from yaie_engine import LLM, Generation, RequestOutput, SamplingParams, YaieError
from yaie_engine.detokenizer import Detokenizer
from yaie_engine.plan import StepPlan
from yaie_engine.snapshot import StepTimes

Asks = list[tuple[list[int], SamplingParams]]
HEAD = list(range(1, 14))


def submitted(llm: LLM, asks: Asks, names: list[str] | None = None) -> list[Generation]:
    """All queued before the engine looks at the first: it then does the same every time. `names` gets their ids."""
    hold = threading.Event()
    llm._engine._inbox.put(lambda: hold.wait(LONG) and None)
    handles = [llm.submit(prompt, params) for prompt, params in asks]
    if names is not None:
        names += [handle.request_id for handle in handles]
    hold.set()
    return handles


def run_all(llm: LLM, asks: Asks) -> list[RequestOutput]:
    return [handle.result(LONG) for handle in submitted(llm, asks)]


def plain(outputs: list[RequestOutput]) -> list[Any]:
    """All of some results that is no time and no place."""
    found = []
    for output in outputs:
        data = output.to_dict()
        metrics = {name: data["metrics"][name] for name in ("reuse", "num_computed_tokens", "num_preemptions")}
        found.append({**data, "metrics": metrics})
    return found


def traces(llm: LLM) -> dict[str, Any]:
    """All that a run left in tree, blocks and recorder."""
    llm.check()
    snapshot, tape = llm.snapshot(), llm.tape()
    return {
        "tree": snapshot.tree,
        "blocks": snapshot.blocks,
        "counters": snapshot.counters,
        "steps": [replace(step, ms=StepTimes()) for step in snapshot.steps],
        "tape": [replace(step, at=0.0, left=tuple(sorted(step.left))) for step in tape.steps],
        "frames": [frame.copy() for frame in tape.frames()],
        "records": [
            (record.output_token_ids, record.matched, record.blocks_owned, record.blocks_shared, record.last_step)
            for record in llm.history()
        ],
    }


MIXED: Asks = [
    (HEAD, greedy(20, ignore_eos=True, logprobs=2, prompt_logprobs=1)),
    (HEAD[:9], SamplingParams(max_tokens=16, seed=3, temperature=1.3, top_k=30, logprobs=1)),
    ([*HEAD, 40], SamplingParams(n=3, max_tokens=12, seed=5, temperature=1.1, stop=["a", "Q7"])),
    ([50, 51], greedy(30, repetition_penalty=1.4, frequency_penalty=0.3, min_tokens=6, stop_token_ids=list(range(60)))),
    ([60, 61, 62], SamplingParams(max_tokens=18, seed=9, temperature=1.5, stop_token_ids=[70, 80, 90, 100])),
    (HEAD[:12], greedy(1)),
    ([7, 8], greedy(25, stop=["zz", "e"], include_stop_str_in_output=True, priority=1)),
    ([90], SamplingParams(max_tokens=9, seed=1, logit_bias={5: 4.0}, presence_penalty=0.5, cache_salt="s")),
]


@pytest.mark.parametrize(
    "settings",
    [{}, {"num_blocks": 14}, {"num_blocks": 11, "block_size": 4, "max_num_seqs": 4}, {"max_num_seqs": 2},
     {"enable_prefix_caching": False}, {"max_num_batched_tokens": 6}, {"enable_chunked_prefill": False}],
    ids=str,
)  # fmt: skip
def test_results_tree_blocks_and_records_are_those_of_steps_in_turn(
    make_llm: Make, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    """Whether tokens are delivered before the next launch or after it."""
    found = []
    for overlap, fast in ((False, False), (True, False), (True, True)):
        llm = make_llm(**settings)
        llm._engine.overlap = overlap
        monkeypatch.setattr(llm._engine.runner, "replays", lambda num_decodes, fast=fast: fast and num_decodes > 0)
        results = [plain(run_all(llm, MIXED)), plain(run_all(llm, MIXED[::-1]))]
        found.append((results, traces(llm)))
    for results, told in found[1:]:
        assert results == found[0][0]
        for name, trace in found[0][1].items():
            assert told[name] == trace, name
    assert {choice["finish_reason"] for each in found[0][0][0] for choice in each["outputs"]} == {"stop", "length"}


def test_an_end_of_text_is_seen_before_the_next_step(llm: LLM) -> None:
    """Said by ids alone: no step too many, and the guess that it broke costs nothing."""
    ends = {(1, 2): 5, (3, 4): 9, (5,): 2}

    def answer(ids: list[int]) -> int:
        head = next(head for head in ends if ids[: len(head)] == list(head))
        return EOS if len(ids) - len(head) == ends[head] else 10 + len(ids)

    with late(llm, answer) as device:
        outputs = run_all(llm, [(list(head), greedy(40)) for head in ends])
    for output, count in zip(outputs, ends.values(), strict=True):
        assert len(output.outputs[0].token_ids) == count + 1 and output.outputs[0].finish_reason == "stop"
        assert output.metrics.num_computed_tokens == len(output.prompt_token_ids) + count
    assert max(step for _, step in device.log if _ == "launch") == llm.snapshot().step


def test_delivery_record_and_schedule_happen_while_the_device_works(llm: LLM) -> None:
    with late(llm) as device:
        outputs = run_all(llm, [([i, 2, 3], greedy(12, ignore_eos=True)) for i in range(3)])
        for output in outputs:
            assert tokens(output) == Formula.greedy(Formula(0), list(output.prompt_token_ids), 12)
    first = next(step for what, step in device.log if what == "launch")
    steady = range(first + 3, first + 10)
    for step in steady:
        start, stop = device.log.index(("launch", step)), device.log.index(("launch", step + 1))
        kinds = [what for what, _ in device.log[start:stop]]
        assert kinds == ["launch", "record", *["deliver"] * 3, "prepare", "wait", "complete"]
        assert device.log[start + 1] == ("record", step - 1) and ("prepare", step + 1) in device.log[start:stop]
    assert set(waits_per_step(device).values()) == {1}
    assert device.taken >= len(steady)


def test_in_turn_nothing_is_left_for_later(llm: LLM) -> None:
    with late(llm, overlap=False) as device:
        run_all(llm, [([i, 2, 3], greedy(5, ignore_eos=True)) for i in range(3)])
    kinds = [what for what, _ in device.log]
    assert device.prepared == 0 and kinds[:7] == ["schedule", "launch", "wait", "complete", *["deliver"] * 3]
    assert set(waits_per_step(device).values()) == {1}


def test_only_tokens_that_may_end_their_sequence_are_delivered_at_once(llm: LLM) -> None:
    """Those of a request with a stop string; the next step of both is guessed all the same."""
    asks = [([1, 2, 3], greedy(12, ignore_eos=True, stop=["never said"])), ([4], greedy(12, ignore_eos=True))]
    with late(llm) as device:
        run_all(llm, asks)
    launch = [place for place, (what, _) in enumerate(device.log) if what == "launch"][5]
    kinds = [what for what, _ in device.log[launch : launch + 7]]
    assert kinds == ["launch", "record", "deliver", "prepare", "wait", "complete", "deliver"]


@pytest.mark.parametrize(
    "settings", [{}, {"num_blocks": 10, "max_num_seqs": 4}, {"max_num_batched_tokens": 5}], ids=str
)
def test_the_device_reads_what_it_must_under_pressure(make_llm: Make, settings: dict[str, Any]) -> None:
    """With preemption, copies, eviction and chunks: every slot of every step, in the order of the queue."""
    llm = make_llm(**settings)
    asks: Asks = [
        (HEAD[: 3 + i] + [i] * (i % 3), SamplingParams(n=1 + i % 2, temperature=0, max_tokens=4 + 3 * (i % 4)))
        for i in range(9)
    ]
    with late(llm) as device:
        for _ in range(2):
            for output in run_all(llm, asks):
                assert output.error is None
                for choice in output.outputs:
                    wanted = len(choice.token_ids)
                    assert list(choice.token_ids) == Formula(0).greedy(list(output.prompt_token_ids), wanted)
    assert device.taken > 0
    assert_idle(llm)


def interrupted(llm: LLM, overlap: bool, at: int, act: Callable[[LLM, list[Generation]], None]) -> list[Any]:
    """`act` on two of four requests while step `at` is queued."""
    asks: Asks = [([i, 5, 6], greedy(10, ignore_eos=True)) for i in range(2)]
    asks += [
        ([7, 8], SamplingParams(n=2, max_tokens=9, temperature=0, ignore_eos=True, stop=["never"])),
        ([9], greedy(7)),
    ]
    with late(llm, overlap=overlap) as device:
        handles: list[Generation] = []
        first = llm.snapshot().step

        def before(plan: StepPlan) -> None:
            if plan.step == first + at:
                act(llm, handles)

        device.before = before
        handles += submitted(llm, asks)
        outputs = [handle.result(LONG) for handle in handles]
        for handle, output in zip(handles, outputs, strict=True):
            texts = ["" for _ in output.outputs]
            for item in handle:
                index, text = item if isinstance(item, tuple) else (0, item)
                texts[index] += text
            assert texts == [choice.text for choice in output.outputs]
        assert_idle(llm)
        assert not llm._engine._by_sequence and llm._engine._finished is None
    for data in (found := plain(outputs)):
        data.pop("request_id")
    return found


def cancel_two(llm: LLM, handles: list[Generation]) -> None:
    handles[0].cancel()
    handles[2].cancel()


def time_out_two(llm: LLM, handles: list[Generation]) -> None:
    for handle in (handles[1], handles[2]):
        if handle.request_id in llm._engine.requests:
            llm._engine.requests[handle.request_id].deadline = 0.0


@pytest.mark.parametrize("act", [cancel_two, time_out_two])
@pytest.mark.parametrize("at", range(1, 11))
def test_a_cancel_or_a_timeout_at_any_step_gives_the_same(
    make_llm: Make, at: int, act: Callable[[LLM, list[Generation]], None]
) -> None:
    def errors(outputs: list[Any]) -> list[Any]:
        return [{**each, "error": each["error"] and each["error"]["type"]} for each in outputs]

    in_turn, overlapped = (errors(interrupted(make_llm(), overlap, at, act)) for overlap in (False, True))
    assert in_turn == overlapped
    reasons = {choice["finish_reason"] for each in overlapped for choice in each["outputs"]}
    assert reasons & {"cancelled", "error"} or at > 9


@pytest.mark.parametrize("at", [1, 2, 5])
@pytest.mark.parametrize("kind", [ValueError, MemoryError])
@pytest.mark.parametrize("site", ["look ahead", "prepare"])
def test_a_guess_that_fails_costs_only_the_guess(llm: LLM, site: str, kind: type[BaseException], at: int) -> None:
    asks: Asks = [([i, 2, 3], greedy(12, ignore_eos=True)) for i in range(3)]
    with late(llm) as device:
        owner, name = {"look ahead": (llm._engine, "_look_ahead"), "prepare": (device, "prepare")}[site]
        with planted(owner, name, Fault(kind, at)) as fault:
            outputs = run_all(llm, asks)
    assert fault.raised.is_set() and all(output.error is None for output in outputs)
    assert [tokens(output) for output in outputs] == [Formula(0).greedy(prompt, 12) for prompt, _ in asks]
    assert_idle(llm)


@pytest.mark.parametrize("at", [1, 3])
@pytest.mark.parametrize("site", ["launch", "wait", "take", "complete"])
def test_a_step_that_fails_on_either_side_of_the_wait_fails_who_was_in_it(llm: LLM, site: str, at: int) -> None:
    """And the tokens of the step before are delivered first; the request afterwards is right."""
    asks: Asks = [([i, 2, 3], greedy(12, ignore_eos=True)) for i in range(3)]
    with late(llm) as device:
        scheduler = llm._scheduler
        fault = Fault(ValueError, at + 4)
        if site == "wait":
            start = llm._engine.sampler.start
            owner: Any = llm._engine.sampler
            name, wrapped = "start", lambda *args: fault.before(start(*args))
        else:
            owner, name = {"launch": (device, "run"), "take": (scheduler, "take"), "complete": (scheduler, "complete")}[
                site
            ]
            wrapped = fault.before(getattr(owner, name))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(owner, name, wrapped)
            outputs = run_all(llm, asks)
        assert fault.raised.is_set()
        for output, (prompt, _) in zip(outputs, asks, strict=True):
            assert isinstance(output.error, YaieError) and "planted" in str(output.error)
            assert output.outputs[0].finish_reason == "error"
            expected = Formula(0).greedy(prompt, 12)
            assert tokens(output) == expected[: len(tokens(output))] and len(tokens(output)) >= 3
            assert output.outputs[0].text == llm.tokenizer.decode(tokens(output), skip_special_tokens=True)
        assert tokens(ask(llm, [0, 2, 3], greedy(12, ignore_eos=True))) == Formula(0).greedy([0, 2, 3], 12)
    assert_idle(llm)


@pytest.mark.parametrize("at", [2, 7, 8, 9])
def test_a_token_that_cannot_be_delivered_late_ends_its_request_only(llm: LLM, at: int) -> None:
    """The step that runs meanwhile passes over it; its other choice ends with it."""
    asks: Asks = [
        ([1, 2, 3], greedy(12, ignore_eos=True)),
        ([4, 5], SamplingParams(n=2, temperature=0, max_tokens=12, ignore_eos=True)),
        ([6], greedy(12, ignore_eos=True)),
    ]
    with late(llm), planted(Detokenizer, "push", Fault(ValueError, at)) as fault:
        outputs = run_all(llm, asks)
        assert fault.raised.is_set()
        failed = [output for output in outputs if output.error]
        assert len(failed) == 1 and "planted" in str(failed[0].error)
        for output in outputs:
            for choice in output.outputs:
                expected = Formula(0).greedy(list(output.prompt_token_ids), 12)
                assert list(choice.token_ids) == expected[: len(choice.token_ids)]
                assert choice.finish_reason == ("error" if output.error else "length")
        tape = llm.tape()
        *_, frame = tape.frames()
        nodes = {node.id: node for node in llm._scheduler.tree.nodes() if node.parent is not None}
        assert frame.tables == {} and frame.nodes.keys() == nodes.keys()
    assert_idle(llm)


def test_a_snapshot_never_sees_a_step_that_is_told_by_halves(llm: LLM) -> None:
    """Whoever looks between two steps finds every token delivered and every step recorded."""
    problems: list[str] = []

    def look() -> None:
        engine = llm._engine
        if engine._finished is not None or engine._guess is not None:
            problems.append("something is left for later")
        for request in engine.requests.values():
            for choice in request.choices:
                if choice.row.num_output != choice.detokenizer._num_tokens:
                    problems.append("a token was not delivered")
        if engine.recorder.steps() and engine.recorder.steps()[-1].step != engine.scheduler.step:
            problems.append("a step was not recorded")
        engine.check()

    with late(llm) as device:
        device.before = lambda plan: llm._engine._inbox.put(look) if plan.step % 3 == 0 else None
        run_all(llm, [([i, 2, 3], greedy(12, ignore_eos=True)) for i in range(3)])
    assert problems == []


def test_closing_while_steps_run_delivers_what_was_sampled(make_llm: Make) -> None:
    llm = make_llm()
    with late(llm) as device:
        device.before = lambda plan: llm._engine._inbox.put(llm._engine._stop) if plan.step == 8 else None
        outputs = run_all(llm, [([i, 2, 3], greedy(30, ignore_eos=True)) for i in range(3)])
        llm.close()
    for output in outputs:
        choice = output.outputs[0]
        assert choice.finish_reason == "cancelled" and len(choice.token_ids) >= 4
        assert choice.text == llm.tokenizer.decode(list(choice.token_ids), skip_special_tokens=True)


@pytest.mark.parametrize("overlap", [False, True])
def test_the_times_of_steps_sum_to_no_more_than_the_time(llm: LLM, overlap: bool) -> None:
    """And the wait for the device is part of `sample`, the work behind it is not."""
    first = llm.snapshot().step
    with late(llm, overlap=overlap) as device:
        start = llm._engine.sampler.start

        def slow(*args: Any) -> Callable[[], Any]:
            wait = start(*args)
            return lambda: (time.sleep(0.004), wait())[1]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(llm._engine.sampler, "start", slow)
            began = time.perf_counter()
            run_all(llm, [([i, 2, 3], greedy(12, ignore_eos=True)) for i in range(3)])
            passed = (time.perf_counter() - began) * 1000
    times = [step.ms for step in llm.snapshot().steps if step.step > first]
    sums = [ms.schedule + ms.forward + ms.sample + ms.publish for ms in times]
    assert len(times) >= 12 and sum(sums) <= passed
    assert all(ms.sample >= 4 and min(ms.schedule, ms.forward, ms.publish) > 0 for ms in times)
    assert device.prepared > 0 if overlap else not device.prepared
