"""An error anywhere in a step fails the guilty request, or those in the step, and nothing else; nobody hangs."""

from __future__ import annotations

import pytest
import torch

from tests.engine.conftest import Make
from tests.engine.fakes import LONG, Formula, ask, assert_idle, greedy, swap_runner, tokens
from tests.engine.faults import KINDS, Fault, at_point, planted
from tests.engine.models import VOCAB
from tests.engine.test_overlap import submitted
from yaie_engine import LLM, RequestOutput, SamplingParams, YaieError
from yaie_engine.block_pool import BlockPool
from yaie_engine.detokenizer import Detokenizer
from yaie_engine.fault_points import OF_REQUEST, OF_STEP
from yaie_engine.radix_tree import RadixTree

A, B, C = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10], [20, 21, 22, 23, 24], [1, 2, 3, 4, 40]
PARAMS = greedy(8, prompt_logprobs=1, logprobs=1)
PLAIN = greedy(8)
NO_MEMORY = torch.OutOfMemoryError, MemoryError

pytestmark = pytest.mark.usefixtures("overlap")


def run_all(llm: LLM) -> list[RequestOutput]:
    """Two requests at once, of which only the first wants log-probabilities."""
    handles = submitted(llm, [(A, PARAMS), (B, PLAIN)])
    return [handle.result(LONG) for handle in handles]


def assert_right(output: RequestOutput, prompt: list[int], formula: Formula) -> None:
    assert output.error is None
    assert tokens(output) == formula.greedy(prompt, 8)


def assert_failed(output: RequestOutput, kind: type[BaseException]) -> None:
    assert isinstance(output.error, YaieError) and kind.__name__ in str(output.error) and output.finished
    assert "error" in {choice.finish_reason for choice in output.outputs}


def assert_healthy(llm: LLM, formula: Formula) -> None:
    """The next requests are right, with the cache as it is; then nothing is held."""
    for prompt in (A, B, C):
        assert_right(ask(llm, prompt, PLAIN), prompt, formula)
    assert_idle(llm)
    assert not llm._engine._by_sequence and llm._engine.num_waiting == 0


@pytest.mark.parametrize("at", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("point", OF_STEP)
def test_an_error_of_the_whole_step_fails_who_was_in_it(
    llm: LLM, formula: Formula, point: str, kind: type[BaseException], at: int
) -> None:
    if point == "plan" and llm._engine.overlap:
        at = min(at, 2)  # later steps are guessed
    with at_point(point, Fault(kind, at)) as fault:
        outputs = run_all(llm)
    assert fault.raised.is_set()
    recovers = kind in NO_MEMORY and point == "sample"  # in a smaller step
    assert any(output.error for output in outputs) != recovers
    for output, prompt in zip(outputs, (A, B), strict=True):
        if output.error is None:
            assert_right(output, prompt, formula)
        else:
            assert_failed(output, kind)
    assert_healthy(llm, formula)


@pytest.mark.parametrize("at", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("point", OF_REQUEST)
def test_an_error_of_one_request_fails_only_that_one(
    llm: LLM, formula: Formula, point: str, kind: type[BaseException], at: int
) -> None:
    with at_point(point, Fault(kind, at)) as fault:
        outputs = run_all(llm)
    assert fault.raised.is_set()
    failed = [output for output in outputs if output.error]
    if kind in NO_MEMORY and point in ("score", "logprobs") and not failed:
        assert_healthy(llm, formula)  # scored in a smaller step
        return
    assert len(failed) == 1
    assert_failed(failed[0], kind)
    if point in ("score", "logprobs"):
        assert failed[0] is outputs[0]
    for output, prompt in zip(outputs, (A, B), strict=True):
        if output.error is None:
            assert_right(output, prompt, formula)
    assert_healthy(llm, formula)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", ["step", "times", "left", "request"])
def test_an_error_of_the_recorder_fails_nobody(
    llm: LLM, formula: Formula, what: str, kind: type[BaseException]
) -> None:
    with at_point("record", Fault(kind, when=lambda now: now == what)) as fault:
        outputs = run_all(llm)
    assert fault.raised.is_set()
    for output, prompt in zip(outputs, (A, B), strict=True):
        assert_right(output, prompt, formula)
    assert_healthy(llm, formula)


@pytest.mark.parametrize("at", [1, 2, 3, 5, 8])
@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (BlockPool, "allocate"), (BlockPool, "hold"), (BlockPool, "drop"), (BlockPool, "free"),
        (RadixTree, "match"), (RadixTree, "publish"), (RadixTree, "_grow"), (RadixTree, "_split"),
        (RadixTree, "blocks_to"), (RadixTree, "queue"), (RadixTree, "_touch"),
    ],
)  # fmt: skip
def test_an_error_in_the_middle_of_the_books_empties_the_cache(
    llm: LLM, formula: Formula, owner: type, name: str, at: int
) -> None:
    """Half a change to blocks or tree cannot be undone: the cache starts over, and everything goes on."""
    ask(llm, C, PLAIN)
    with planted(owner, name, Fault(MemoryError, at)):
        outputs = run_all(llm)
    for output, prompt in zip(outputs, (A, B), strict=True):
        if output.error is None:
            assert_right(output, prompt, formula)
        else:
            assert_failed(output, MemoryError)
    assert llm.state == "ready"
    assert_healthy(llm, formula)


def test_what_waits_survives_a_failed_step(make_llm: Make) -> None:
    llm, formula = make_llm(max_num_seqs=2), Formula(VOCAB)
    swap_runner(llm, formula.runner)
    with planted(llm._engine.runner, "run", Fault(RuntimeError, 2)):
        handles = submitted(llm, [(prompt, PLAIN) for prompt in (A, B, C)])
        outputs = [handle.result(LONG) for handle in handles]
    assert [output.error is not None for output in outputs] == [True, True, False]
    assert_right(outputs[2], C, formula)
    assert_healthy(llm, formula)


def test_a_fault_of_one_choice_ends_the_request(llm: LLM, formula: Formula) -> None:
    fault = Fault(ValueError, when=lambda delivery, request, choice, *_: choice.seq.index == 1)
    with planted(type(llm._engine.delivery), "accept", fault):
        output = llm.submit(A, SamplingParams(n=3, max_tokens=6, ignore_eos=True, seed=1)).result(LONG)
    assert_failed(output, ValueError)
    assert {choice.finish_reason for choice in output.outputs} <= {"error", "length"}
    assert_healthy(llm, formula)


def test_an_error_while_cancelling_still_ends_the_request(llm: LLM, formula: Formula) -> None:
    handle = llm.submit(A, greedy(80, ignore_eos=True, stop=["never said"]))
    assert next(iter(handle))
    with planted(Detokenizer, "flush", Fault(ValueError)) as fault:
        handle.cancel()
        assert handle.result(LONG).outputs[0].finish_reason == "cancelled"
    assert fault.raised.is_set()
    assert_healthy(llm, formula)
