"""Decodes recorded and replayed on the CPU: answers of an eager engine, and what stands in the way."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.engine.conftest import Make
from tests.engine.fakes import greedy, tokens
from tests.engine.test_graphs import decode_batch
from yaie_cuda.cpu import build
from yaie_cuda.cpu.recording import Recorder, Room
from yaie_engine import LLM
from yaie_engine.graphs import AT_ONCE, PATIENCE, SIZES_ON_CPU, DecodeGraphs, DecodeInputs
from yaie_engine.runner import ModelRunner
from yaie_engine.tiers.flat import FlatTier

pytestmark = pytest.mark.skipif(bool(build.unbuildable_reason()), reason=build.unbuildable_reason())
CPU = torch.device("cpu")
PROMPTS = [list(range(3, 3 + length)) for length in (37, 21, 1, 5, 16, 40, 33)]


def graphs_of(llm: LLM) -> DecodeGraphs | None:
    runner = llm._engine.runner
    assert isinstance(runner, ModelRunner) and isinstance(runner._tier, FlatTier)
    return runner._tier.graphs


def found(llm: LLM, count: int = len(PROMPTS)) -> list[tuple[int, ...]]:
    outputs = llm.generate(PROMPTS[:count], [greedy(10 + 3 * number) for number in range(count)], use_tqdm=False)
    llm.check()
    return [tuple(tokens(output)) for output in outputs]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("settings", [{}, {"num_blocks": 14, "max_num_batched_tokens": 24}], ids=["roomy", "tight"])
def test_replayed_decodes_give_the_tokens_of_eager_ones(make_llm: Make, settings: dict[str, Any], dtype: str) -> None:
    """Batches that grow and shrink, preemption, warm prefixes, contexts over several blocks."""
    both = [
        make_llm(attention_backend="cpu", dtype=dtype, block_size=16, enforce_eager=eager, **settings)
        for eager in (False, True)
    ]
    for _ in range(2):
        assert found(both[0]) == found(both[1])
    graphs = graphs_of(both[0])
    assert graphs is not None and {1, 2, 3} <= set(graphs.captured) and not graphs.failure
    assert graphs_of(both[1]) is None


def test_batches_that_are_padded_give_the_tokens_of_eager_ones(make_llm: Make) -> None:
    """Up to 37 decodes, which end at different steps, in records of more rows."""
    prompts = [[3 + number, 5, 9 + number % 7] for number in range(37)]
    sampling = [greedy(14 + number % 11) for number in range(37)]
    both = [
        make_llm(attention_backend="cpu", max_num_seqs=40, num_blocks=500, enforce_eager=eager)
        for eager in (False, True)
    ]
    for _ in range(2):
        outputs = [llm.generate(prompts, sampling, use_tqdm=False) for llm in both]
        assert [tokens(one) for one in outputs[0]] == [tokens(one) for one in outputs[1]]
    graphs = graphs_of(both[0])
    assert graphs is not None and 40 in graphs.captured and not graphs.failure
    both[0].check()


@pytest.mark.parametrize("enforce_eager", [False, True], ids=["recorded", "eager"])
def test_decodes_below_shared_prefixes_give_the_tokens_of_the_reference(make_llm: Make, enforce_eager: bool) -> None:
    """Seven below one prefix, six below another that begins as it does, two alone; all end at different steps."""
    base = [3 + 7 * place % 200 for place in range(170)]
    prompts = [[*base, number, 9] for number in range(20, 27)]
    prompts += [base[:96] + [5] * 40 + [number] for number in range(30, 36)] + [[4, 5, 6], base[1:90]]
    sampling = [greedy(6 + number) for number in range(len(prompts))]
    found = []
    for backend in ("cpu", "reference"):
        llm = make_llm(attention_backend=backend, dtype="float32", block_size=16, enforce_eager=enforce_eager)
        outputs = llm.generate(prompts, sampling, use_tqdm=False)
        llm.check()
        found.append([tokens(output) for output in outputs])
    assert found[0] == found[1]


def test_each_small_size_is_recorded_by_itself_when_it_is_needed() -> None:
    graphs = DecodeGraphs(lambda inputs: inputs.tokens[0][:, None] * 2.0, Recorder(), 40, 8, CPU, on_cpu=True)
    graphs.prepare()
    assert graphs.captured == [1]
    rows = graphs.run(decode_batch([4, 5, 6]))
    assert rows is not None and rows.shape == (3, 1) and graphs.captured == [1, 3]
    assert graphs.run(decode_batch([4] * (SIZES_ON_CPU[-1] + 1))) is None


def test_larger_sizes_are_recorded_by_twos_and_fours_once_they_came_several_times() -> None:
    graphs = DecodeGraphs(lambda inputs: inputs.tokens[0][:, None] * 2.0, Recorder(), 60, 8, CPU, on_cpu=True)
    batches = [list(range(3, 3 + count)) for count in (AT_ONCE + 1, AT_ONCE + 2, 59)]
    for _ in range(PATIENCE // 2):  # the first two ask for the same size
        assert graphs.captured == []
        found = [graphs.run(decode_batch(ids)) for ids in batches]
    assert graphs.captured == [AT_ONCE + 2] and [rows is None for rows in found] == [True, False, True]
    for _ in range(PATIENCE):
        found = [graphs.run(decode_batch(ids)) for ids in batches]
    assert graphs.captured == [AT_ONCE + 2, 60]
    for ids in batches:
        rows = graphs.run(decode_batch(ids))
        assert rows is not None and rows[:, 0].tolist() == [2.0 * number for number in decode_batch(ids).ids]


def beside_torch(inputs: DecodeInputs) -> Tensor:
    """A model that reads its ids in a way that no recording sees."""
    return torch.full((inputs.rows, 3), float(inputs.tokens[0].numpy()[0]))


@pytest.mark.parametrize(
    ("forward", "why"),
    [
        (beside_torch, "it gives other logits for other inputs"),
        (lambda inputs: torch.zeros(inputs.rows, 3) + inputs.tokens.max().item(), "_local_scalar_dense"),
    ],
)
def test_a_model_that_cannot_be_recorded_runs_eagerly_and_says_why(
    forward: Callable[[DecodeInputs], Tensor], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    graphs = DecodeGraphs(forward, Recorder(), 4, 8, CPU, on_cpu=True)
    with caplog.at_level(logging.WARNING, "yaie"):
        graphs.prepare()
        assert graphs.run(decode_batch([4])) is None
    assert why in graphs.failure and len(caplog.records) == 1


def test_memory_that_is_short_for_a_moment_ends_no_recordings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a kernel, or of torch, which says so in a plain RuntimeError."""
    graphs = DecodeGraphs(lambda inputs: torch.empty(inputs.rows, 2).fill_(1), Recorder(), 9, 8, CPU, on_cpu=True)
    like = Room.like
    for error in (MemoryError("none"), RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory")):

        def fail(*_: Any, error: Exception = error) -> Tensor:
            raise error

        monkeypatch.setattr(Room, "like", fail)
        assert graphs.run(decode_batch([4, 5])) is None and not graphs.failure and not graphs.captured
    monkeypatch.setattr(Room, "like", like)
    assert graphs.run(decode_batch([4, 5])) is not None and graphs.captured == [2]


def test_a_hook_on_every_module_sees_every_step(make_llm: Make) -> None:
    llm = make_llm(attention_backend="cpu", dtype="float32")
    before, seen = found(llm, 1), []
    hook = torch.nn.modules.module.register_module_forward_hook(lambda module, args, out: seen.append(module))
    try:
        assert found(llm, 1) == before and len(seen) > 100
    finally:
        hook.remove()


def test_weights_that_were_given_other_memory_are_read_there(make_llm: Make) -> None:
    """As `model.double().float()` does, or a user who loads other weights: the old memory may be anybody's."""
    llm = make_llm(attention_backend="cpu", dtype="float32", enable_prefix_caching=False)
    before = found(llm, 3)
    model = llm._engine.runner._tier._call.model  # type: ignore[attr-defined]
    for parameter in model.parameters():
        parameter.data = parameter.data.clone()
    junk = [torch.full_like(model.model.norm.weight, 1e4) for _ in range(200)]
    assert found(llm, 3) == before and len(junk) == 200
    graphs = graphs_of(llm)
    assert graphs is not None and graphs.captured and not graphs.failure
    model.model.norm.weight.data.mul_(0)
    assert found(llm, 1) != before[:1]


def test_a_replay_that_fails_is_no_failed_request(make_llm: Make, caplog: pytest.LogCaptureFixture) -> None:
    llm = make_llm(attention_backend="cpu", dtype="float32")
    before, graphs = found(llm, 2), graphs_of(llm)
    assert graphs is not None

    def fail() -> None:
        raise RuntimeError("the shape of a result is another one")

    def spoil() -> None:
        graphs._graphs = {rows: replace(graph, replay=fail) for rows, graph in graphs._graphs.items()}

    llm._engine.call(spoil)
    with caplog.at_level(logging.WARNING, "yaie"):
        assert found(llm, 2) == before == found(llm, 2)
    assert ["a replay of" in record.getMessage() for record in caplog.records] == [True]


def test_the_check_sees_what_differs_also_while_blocks_hold_nan(make_llm: Make) -> None:
    """Logits of both would be NaN alike, had it read such a block."""
    llm = make_llm(attention_backend="cpu", dtype="float32")
    runner, graphs = llm._engine.runner, graphs_of(llm)
    assert isinstance(runner, ModelRunner) and graphs is not None
    forward = graphs._forward

    def spoil() -> None:
        for pair in runner.cache.layers.values():
            for tensor in pair:
                tensor.fill_(torch.nan)
        graphs.drop()
        graphs._forward = lambda inputs: forward(inputs) + float(inputs.tokens[0].numpy()[0])
        with torch.inference_mode():
            graphs.prepare()

    llm._engine.call(spoil)
    assert "it gives other logits for other inputs" in graphs.failure


def test_sleep_lets_go_of_what_was_recorded(make_llm: Make) -> None:
    llm = make_llm(attention_backend="cpu", dtype="float32")
    before = found(llm, 2)
    for level in (1, 2):
        llm.sleep(level)
        assert graphs_of_sleeping(llm)
        llm.wake_up()
        assert found(llm, 2) == before
        graphs = graphs_of(llm)
        assert graphs is not None and graphs.captured == [1, 2]


def graphs_of_sleeping(llm: LLM) -> bool:
    runner = llm._engine.runner
    return isinstance(runner, ModelRunner) and runner._tier is None


def test_a_hook_sees_every_step_while_it_is_there(make_llm: Make) -> None:
    """It comes after decodes were recorded."""
    llm = make_llm(attention_backend="cpu", dtype="float32", enable_prefix_caching=False)
    before, seen = found(llm, 1), []
    layer = llm._engine.runner._tier._call.model.model.layers[1]  # type: ignore[attr-defined]
    hook = layer.register_forward_hook(lambda module, args, out: seen.append(args[0].shape[1]))
    assert found(llm, 1) == before
    assert sum(seen) == 37 + 9 and seen[-9:] == [1] * 9
    hook.remove()
    count = len(seen)
    assert found(llm, 1) == before and len(seen) == count


def test_observed_steps_run_eagerly_and_later_ones_are_replayed_again(make_llm: Make) -> None:
    llm = make_llm(attention_backend="cpu", dtype="float32")
    before = found(llm, 3)
    llm.detect_anomaly(True)
    assert found(llm, 3) == before
    llm.detect_anomaly(False)
    assert found(llm, 3) == before
