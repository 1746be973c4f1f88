"""Decodes replayed as graphs: sizes, padding, refresh and replay, with a recorder in the place of CUDA."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch

from tests.engine.conftest import Make
from tests.engine.fakes import greedy, tokens
from tests.engine.graph_recorder import GraphRecorder
from tests.engine.standin import standin, standin_kernels
from yaie_engine import LLM
from yaie_engine.batch import FlatBatch
from yaie_engine.graphs import PATIENCE, DecodeGraphs, DecodeInputs, buckets
from yaie_engine.plan import ScheduledSequence, StepPlan
from yaie_engine.runner import ModelRunner
from yaie_engine.sequence import Sequence
from yaie_engine.tiers.flat import FlatInputs, FlatTier
from yaie_engine.trace import Tracer

CPU = torch.device("cpu")
PROMPTS = [list(range(3, 3 + length)) for length in (37, 21, 1, 5, 16)]


def decode_batch(contexts: list[int], block_size: int = 16) -> FlatBatch:
    """One decode per context length, in blocks 0, 1, 2 ..."""
    plan, block = StepPlan(1), 0
    for number, length in enumerate(contexts):
        count = -(-length // block_size)
        ids = [(3 * i + number) % 250 for i in range(length)]
        seq = Sequence(number, str(number), ids, length, 1, block_table=list(range(block, block + count)))
        plan.batch.append(ScheduledSequence(seq, length - 1, 1, length - 1, "decode", True))
        block += count
    return FlatBatch(plan, block_size, CPU)


@pytest.fixture
def graphed(make_llm: Make) -> tuple[LLM, GraphRecorder]:
    """An engine on kernels whose decodes go through the recorder."""
    recorder = GraphRecorder()
    with standin(recorder.kernels(standin_kernels())):
        llm = make_llm(attention_backend="emulated", dtype="float32", block_size=16, max_num_seqs=6)
    runner = llm._engine.runner
    assert isinstance(runner, ModelRunner)
    llm._engine.call(lambda: runner.use_graphs(recorder.capture, 6, llm.max_model_len))
    return llm, recorder


@pytest.mark.parametrize(
    ("most", "sizes"),
    [(1, (1,)), (2, (1, 2)), (6, (1, 2, 4, 6)), (8, (1, 2, 4, 8)), (65, (1, 2, 4, 8, 16, 32, 64, 65))],
)
def test_batch_sizes(most: int, sizes: tuple[int, ...]) -> None:
    assert buckets(most) == sizes


def test_padded_rows_write_nothing_and_see_nothing() -> None:
    inputs = DecodeInputs(4, 5, CPU)
    inputs.refresh(decode_batch([40, 7, 3]))
    inputs.refresh(decode_batch([20, 33]))  # shorter: nothing of the first batch may stay in a row that counts
    assert inputs.input_ids.tolist() == [[(3 * 19) % 250, (3 * 32 + 1) % 250, 0, 0]]
    assert inputs.position_ids.tolist() == [[19, 32, 0, 0]]
    assert inputs.slots.tolist() == [16 + 3, 4 * 16, -1, -1]
    assert inputs.contexts.tolist() == [20, 33, 0, 0]
    assert inputs.tables[:2, :3].tolist() == [[0, 1, 0], [2, 3, 4]]


def test_the_smallest_size_that_holds_the_batch_is_replayed() -> None:
    ran: list[int] = []

    def capture(run: Any) -> Any:
        result = run()
        return result, lambda: ran.append(len(result))

    graphs = DecodeGraphs(lambda inputs: torch.zeros(inputs.rows, 3), capture, 6, 8, CPU)
    for count in (1, 2, 3, 4, 5, 6):
        rows = graphs.run(decode_batch([4] * count))
        assert rows is not None and rows.shape == (count, 3)
    assert ran == [1, 2, 4, 4, 6, 6]
    assert graphs.captured == [1, 2, 4, 6]
    assert graphs.run(decode_batch([4] * 7)) is None
    graphs.drop()
    assert graphs.captured == []


def test_a_capture_that_fails_is_said_once_and_steps_run_eagerly(caplog: pytest.LogCaptureFixture) -> None:
    def capture(run: Any) -> Any:
        raise RuntimeError("operation not permitted when stream is capturing")

    graphs = DecodeGraphs(lambda inputs: torch.zeros(inputs.rows, 3), capture, 4, 8, CPU)
    with caplog.at_level(logging.WARNING, "yaie"):
        graphs.prepare()
        assert graphs.run(decode_batch([4])) is None and graphs.run(decode_batch([4, 5])) is None
    assert [record.getMessage() for record in caplog.records] == [
        "decodes run without graphs: the capture of 4 rows failed: "
        "RuntimeError: operation not permitted when stream is capturing"
    ]


def test_replayed_decodes_give_the_tokens_of_eager_ones(graphed: tuple[LLM, GraphRecorder], make_llm: Make) -> None:
    llm, recorder = graphed
    captures = recorder.captures
    assert captures == len(buckets(6))
    with standin(standin_kernels()):
        eager = make_llm(attention_backend="emulated", dtype="float32", block_size=16, max_num_seqs=6)
    for count in (1, 3, 5):
        expected = [tokens(out) for out in eager.generate(PROMPTS[:count], greedy(12), use_tqdm=False)]
        assert [tokens(out) for out in llm.generate(PROMPTS[:count], greedy(12), use_tqdm=False)] == expected
    assert recorder.replays > 20 and recorder.captures == captures


def test_replayed_logits_are_those_of_an_eager_step_and_padding_changes_nothing(
    graphed: tuple[LLM, GraphRecorder],
) -> None:
    """With NaN in all blocks that nobody has; K and V of the others are as an eager step leaves them.

    More rows may round a product another way: K and V are equal bit for bit where no row was added, else nearly.
    """
    llm, recorder = graphed
    runner = llm._engine.runner
    assert isinstance(runner, ModelRunner)

    def compare() -> None:
        cache = [tensor for pair in runner.cache.layers.values() for tensor in pair]
        for tensor in cache:
            tensor.normal_().mul_(0.3)
            tensor[10:].fill_(torch.nan)
        before = [tensor.clone() for tensor in cache]

        def restore() -> None:
            for tensor, old in zip(cache, before, strict=True):
                tensor.copy_(old)

        for contexts in ([40, 7, 33], [17], [16, 16, 16, 16, 3], [5, 20, 1, 2]):
            plan = StepPlan(1, list(decode_batch(contexts).entries))
            replays = recorder.replays
            replayed = runner.run(plan).logits.clone()
            assert recorder.replays == replays + 1
            written = [tensor.clone() for tensor in cache]
            restore()
            eager = runner.run(plan, frozenset(entry.seq.seq_id for entry in plan.batch)).logits
            assert recorder.replays == replays + 1  # rows of prompts are wanted: no graph gives them
            torch.testing.assert_close(replayed, eager, rtol=1e-5, atol=1e-5)
            near = 0.0 if len(contexts) in buckets(6) else 1e-5
            for found, expected in zip(written, cache, strict=True):
                torch.testing.assert_close(found, expected, rtol=near, atol=near, equal_nan=True)
            restore()

    llm._engine.call(compare)


def test_an_exchanged_kernel_is_captured_anew(graphed: tuple[LLM, GraphRecorder]) -> None:
    llm, recorder = graphed
    runner = llm._engine.runner
    assert isinstance(runner, ModelRunner)
    before = recorder.captures
    llm._engine.call(runner.forget_graphs)
    llm.generate(PROMPTS[:1], greedy(4), use_tqdm=False)
    assert recorder.captures == before + 1


def test_close_lets_go_of_the_graphs(graphed: tuple[LLM, GraphRecorder]) -> None:
    llm, _ = graphed
    runner = llm._engine.runner
    assert isinstance(runner, ModelRunner)
    graphs = runner._tier.graphs  # type: ignore[union-attr]
    assert graphs.captured
    llm.close()
    assert graphs.captured == []


@pytest.mark.parametrize("eager", [False, True], ids=["graphs", "eager"])
def test_inputs_made_ahead_of_time_are_those_of_the_step(
    graphed: tuple[LLM, GraphRecorder], monkeypatch: pytest.MonkeyPatch, eager: bool
) -> None:
    """With overlap: the same tokens, from inputs that were staged while the step before ran."""
    llm, recorder = graphed
    if eager:
        llm._engine.call(lambda: setattr(llm._engine.runner._tier, "graphs", None))  # type: ignore[union-attr]
    used: list[bool] = []
    run = FlatTier.run

    def watched(tier: FlatTier, plan: StepPlan, prompt_ids: Any = ()) -> Any:
        if isinstance(plan.inputs, FlatInputs):
            fresh, inputs = FlatBatch(plan, 16, CPU, prompt_ids, plan.inputs.batch.sharing), plan.inputs
            assert (fresh.ids, fresh.positions, fresh.slots) == (
                inputs.batch.ids,
                inputs.batch.positions,
                inputs.batch.slots,
            )
            assert fresh.contexts == inputs.batch.contexts and fresh.kept_rows == inputs.batch.kept_rows
            assert fresh.tables == inputs.batch.tables
            used.append(inputs.batch.staged is not None)
        return run(tier, plan, prompt_ids)

    expected = [tokens(out) for out in llm.generate(PROMPTS, greedy(40), use_tqdm=False)]
    llm.reset()
    monkeypatch.setattr(FlatTier, "run", watched)
    llm._engine.overlap = True
    replays = recorder.replays
    assert [tokens(out) for out in llm.generate(PROMPTS, greedy(40), use_tqdm=False)] == expected
    assert len(used) > 30 and set(used[-30:]) == {not eager}  # chunks of prompts before
    assert (recorder.replays > replays + 30) != eager


def test_whether_a_step_is_replayed_is_known_before(graphed: tuple[LLM, GraphRecorder]) -> None:
    """Not where a capture comes first: after the kernels were exchanged, and when a cascade is due."""
    llm, _ = graphed
    runner = llm._engine.runner
    decodes = runner._tier.graphs  # type: ignore[union-attr]

    def known() -> list[bool]:
        return [runner.replays(count) for count in (0, 1, 3, 4, 6, 7)]

    assert known() == [False, True, True, True, True, False]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            decodes, "_capture_cascade", lambda plain, groups: decodes._cascades.setdefault((4, groups), plain)
        )
        for asked in range(PATIENCE):
            assert known() == [False, True, *[asked < PATIENCE - 1] * 2, True, False]
            assert (decodes._cascade(decodes._graphs[4], 5) is None) == (asked < PATIENCE - 1)
        assert known() == [False, True, True, True, True, False]
    decodes._asked[1, 8] = PATIENCE
    assert not runner.replays(1)
    decodes.cascade_failure = "refused"
    assert runner.replays(1), "none is due any more"
    llm._engine.call(runner.forget_graphs)  # type: ignore[union-attr]
    assert known() == [False] * 6


def test_no_token_waits_for_a_capture(graphed: tuple[LLM, GraphRecorder]) -> None:
    """In the midst of serving, after the graphs were dropped; tokens do wait for replays."""
    llm, _ = graphed
    engine = llm._engine
    engine.overlap = True
    engine.call(engine.runner.forget_graphs)  # type: ignore[union-attr]
    decodes = engine.runner._tier.graphs  # type: ignore[union-attr]
    waiting: dict[str, list[int]] = {"capture": [], "run": []}

    def noted(name: str, function: Any) -> Any:
        def run(*args: Any) -> Any:
            waiting[name].append(len(engine._finished.tokens) if engine._finished else 0)
            return function(*args)

        return run

    decodes._capture = noted("capture", decodes._capture)
    decodes.run = noted("run", decodes.run)
    outputs = llm.generate([[i, 2, 3] for i in range(4)], [greedy(6 + 4 * i) for i in range(4)], use_tqdm=False)
    assert all(output.error is None for output in outputs)
    assert len(waiting["capture"]) >= 3 and set(waiting["capture"]) == {0}
    assert any(waiting["run"])


def test_steps_are_replayed_again_after_a_trace(graphed: tuple[LLM, GraphRecorder]) -> None:
    llm, recorder = graphed
    expected = [tokens(out) for out in llm.generate(PROMPTS, greedy(8), use_tqdm=False)]
    llm.reset()
    replays = recorder.replays
    llm.trace(tracer := Tracer(num_steps=3))
    assert not llm._engine.runner.replays(1)
    assert [tokens(out) for out in llm.generate(PROMPTS, greedy(8), use_tqdm=False)] == expected
    assert len(tracer.trace.steps) == 3 and llm.tracer is tracer
    assert llm._engine.runner.replays(1) and recorder.replays > replays
