"""The engine with cascades: every row gets its own answer, members come and go, and captures are replayed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from tests.engine.conftest import Make
from tests.engine.fakes import LONG, assert_idle, greedy, tokens
from tests.engine.graph_recorder import GraphRecorder
from tests.engine.standin import REFERENCES, standin, standin_kernels
from yaie_engine import LLM, ConfigError, graphs
from yaie_engine.backends.cascade import CascadeGate
from yaie_engine.kernel_exchange import _capture_anew
from yaie_engine.runner import ModelRunner

HEAD = [(7 * i * i + 3 * i) % 250 for i in range(37)]
PROMPTS = [[*HEAD, *range(i, 3 * i + 1)] for i in range(5)]


# ---- the engine


class Watch:
    """Stand-in kernels whose cascade checks that its groups are what they must be; `sizes` are those of its groups."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.sizes: Counter[tuple[int, ...]] = Counter()
        self.kernels = replace(standin_kernels(self.calls), cascade_attention_decode=self.cascade)

    def cascade(self, query: Any, keys: Any, values: Any, tables: Any, contexts: Any, *rest: Any) -> None:
        starts, shared_lens, largest = rest[0].tolist(), rest[1].tolist(), rest[2]
        block_size, sizes = keys.shape[2], []
        assert starts[0] == 0 and starts[-1] == len(tables) == len(shared_lens)
        for start, stop in pairwise(starts):
            assert start <= stop <= start + largest
            members = range(start, stop)
            blocks, left = divmod(shared_lens[start] if members else 0, block_size)
            assert not left
            for row in members:
                assert shared_lens[row] == shared_lens[start] < max(contexts[row], 1)  # 0: padding
                assert tables[row, :blocks].tolist() == tables[start, :blocks].tolist()
            if blocks:
                sizes.append(len(members))
        self.sizes[tuple(sizes)] += 1
        self.calls["cascade_attention_decode"] += 1
        REFERENCES["cascade_attention_decode"](query, keys, values, tables, contexts, *rest)


Start = Callable[..., tuple[LLM, Watch]]


@pytest.fixture
def start(make_llm: Make, monkeypatch: pytest.MonkeyPatch) -> Start:
    """An engine on stand-ins to which every shared block is worth a cascade, unless `always` is False."""

    def make(always: bool = True, **settings: Any) -> tuple[LLM, Watch]:
        watch = Watch()
        if always:
            monkeypatch.setattr(CascadeGate, "_hopeless", lambda *_: False)
            monkeypatch.setattr(CascadeGate, "_worth", lambda *_: True)
        with standin(watch.kernels):
            llm = make_llm(attention_backend="emulated", **settings)
        watch.calls.clear()
        watch.sizes.clear()
        return llm, watch

    return make


@pytest.mark.parametrize("block_size", [4, 16])
def test_members_join_and_leave_and_chunks_run_beside_them(start: Start, make_llm: Make, block_size: int) -> None:
    """Requests of several lengths on one prefix, and a long prompt that is read in chunks while they decode."""
    settings = {"block_size": block_size, "num_blocks": 512 // block_size}
    llm, watch = start(**settings)
    plain = make_llm(attention_backend="reference", **settings)
    answers = []
    for engine in (llm, plain):
        handles = [engine.submit(prompt, greedy(6 + 4 * i)) for i, prompt in enumerate(PROMPTS)]
        next(iter(handles[-1]))
        handles.append(engine.submit([5, *range(60, 130)], greedy(4)))  # another prompt, in chunks of 8
        handles.append(engine.submit([*HEAD, 99], greedy(9)))
        answers.append([tokens(handle.result(LONG)) for handle in handles])
    assert answers[0] == answers[1]
    assert watch.calls["cascade_attention_decode"] > 30
    assert {size for sizes in watch.sizes for size in sizes} >= {2, 3, 4}
    mixed = [s for s in llm.snapshot().steps if s.num_prefill_tokens > 1 and s.num_decode_tokens > 1]
    assert mixed
    assert_idle(llm)


def test_what_is_not_worth_it_runs_plainly(start: Start) -> None:
    llm, watch = start(always=False)
    llm.generate(PROMPTS, greedy(6), use_tqdm=False)
    assert watch.calls["cascade_attention_decode"] == 0 < watch.calls["paged_attention_decode"]


def test_preempted_members(start: Start, make_llm: Make) -> None:
    small, watch = start(num_blocks=26)
    plain = make_llm(attention_backend="reference", num_blocks=200)
    answers = [
        [tokens(out) for out in engine.generate(PROMPTS, greedy(30), use_tqdm=False)] for engine in (small, plain)
    ]
    assert answers[0] == answers[1]
    assert small.snapshot().counters.preemptions > 0
    assert watch.calls["cascade_attention_decode"] > 0
    assert_idle(small)


def test_without_prefix_caching_only_choices_of_one_prompt_share(start: Start, make_llm: Make) -> None:
    llm, watch = start(enable_prefix_caching=False)
    plain = make_llm(attention_backend="reference", enable_prefix_caching=False)
    answers = [[tokens(out) for out in e.generate(PROMPTS[:2], greedy(6), use_tqdm=False)] for e in (llm, plain)]
    assert answers[0] == answers[1]
    assert watch.calls["cascade_attention_decode"] == 0
    params = greedy(6).replace(temperature=1.0, n=3, seed=4)
    several = [e.generate(PROMPTS[4], params, use_tqdm=False)[0] for e in (llm, plain)]
    assert [list(c.token_ids) for c in several[0].outputs] == [list(c.token_ids) for c in several[1].outputs]
    assert set(watch.sizes) <= {(2,), (3,)} and watch.sizes[(3,)] > 0


def test_logits_of_prompts_stay_with_their_request(start: Start, make_llm: Make) -> None:
    llm, watch = start(num_blocks=200)
    plain = make_llm(attention_backend="reference", num_blocks=200)
    params = [greedy(7, logprobs=1), greedy(9, prompt_logprobs=1), greedy(8)]
    found = []
    for engine in (llm, plain):
        outs = engine.generate([*PROMPTS[:2], [7, *HEAD]], params, use_tqdm=False)
        found.append(
            [(out.outputs[0].token_ids, [sorted(row or ()) for row in out.prompt_logprobs or ()]) for out in outs]
        )
    assert found[0] == found[1]
    assert watch.calls["cascade_attention_decode"] > 0


def test_a_cascade_that_is_wrong_is_not_taken(make_llm: Make) -> None:
    def prefix_only(query: Any, keys: Any, values: Any, tables: Any, contexts: Any, starts: Any, *rest: Any) -> None:
        REFERENCES["cascade_attention_decode"](query, keys, values, tables, rest[0].clamp_min(1), starts, *rest)

    wrong = replace(standin_kernels(), cascade_attention_decode=prefix_only)
    with standin(wrong), pytest.raises(ConfigError, match="attention differs from the reference by"):
        make_llm(attention_backend="emulated", block_size=16)


# ---- captured


@pytest.fixture
def captured(
    start: Start, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> tuple[LLM, Watch, GraphRecorder]:
    """The engine with recorded decodes; a cascade is captured the second time that it is asked for.

    With parameter True those of usual sizes are captured at load.
    """
    monkeypatch.setattr(graphs, "PATIENCE", 2)
    monkeypatch.setattr(CascadeGate, "ever", lambda *_: getattr(request, "param", False))
    recorder = GraphRecorder()
    plain = Watch.__init__

    def init(self: Watch) -> None:
        plain(self)
        self.kernels = recorder.kernels(self.kernels)

    monkeypatch.setattr(Watch, "__init__", init)
    llm, watch = start(num_blocks=200, max_num_seqs=6)
    runner = llm._engine.runner
    assert isinstance(runner, ModelRunner)
    llm._engine.call(lambda: runner.use_graphs(recorder.capture, 6, llm.max_model_len))
    return llm, watch, recorder


def test_cascades_are_captured_per_size_and_replayed(
    captured: tuple[LLM, Watch, GraphRecorder], make_llm: Make
) -> None:
    llm, watch, recorder = captured
    plain = make_llm(attention_backend="reference", num_blocks=200)
    prompts = [*PROMPTS[:3], [3, 1, 4, 1, 5], *PROMPTS[3:]]  # one that shares nothing among the others
    for count in (3, 5, 6):
        replays = recorder.replays
        params = [greedy(8 + i) for i in range(count)]
        expected = [tokens(out) for out in plain.generate(prompts[-count:], params, use_tqdm=False)]
        assert [tokens(out) for out in llm.generate(prompts[-count:], params, use_tqdm=False)] == expected
        assert recorder.replays > replays
    decodes = llm._engine.runner._tier.graphs  # type: ignore[union-attr]
    assert {(2, 1), (4, 2), (6, 2)} <= set(decodes.cascades)
    assert recorder.captures == len(decodes.captured) + len(decodes.cascades)
    assert {sizes for sizes, count in watch.sizes.items() if count > 1} >= {(2,), (4,), (5,)}
    llm._engine.call(llm._engine.runner.forget_graphs)  # type: ignore[union-attr]
    assert decodes.cascades == []


@pytest.mark.parametrize("captured", [True], indirect=True)
def test_usual_cascades_are_captured_at_load_and_none_while_serving(
    captured: tuple[LLM, Watch, GraphRecorder], make_llm: Make
) -> None:
    llm, watch, recorder = captured
    decodes = llm._engine.runner._tier.graphs  # type: ignore[union-attr]
    assert decodes.cascades == [(4, 4), (6, 4)]
    captures = recorder.captures
    plain = make_llm(attention_backend="reference", num_blocks=200)
    for count in (3, 5):
        params = [greedy(8 + i) for i in range(count)]
        expected = [tokens(out) for out in plain.generate(PROMPTS[:count], params, use_tqdm=False)]
        assert [tokens(out) for out in llm.generate(PROMPTS[:count], params, use_tqdm=False)] == expected
    assert {sizes for sizes, count in watch.sizes.items() if count > 1} >= {(3,), (5,)}
    two = [key for key in decodes.cascades if key[0] == 2]
    assert recorder.captures == captures + len(two) and len(decodes.cascades) == 2 + len(two)


def test_an_exchange_captures_anew_before_the_next_step(captured: tuple[LLM, Watch, GraphRecorder]) -> None:
    llm, _, recorder = captured
    decodes, before = llm._engine.runner._tier.graphs, recorder.captures  # type: ignore[union-attr]
    llm._engine.call(lambda: _capture_anew(llm._engine.runner))  # type: ignore[arg-type]
    assert decodes.captured == [1, 2, 4, 6] and recorder.captures == before + 4


def test_a_cascade_that_cannot_be_captured_leaves_plain_replays(
    captured: tuple[LLM, Watch, GraphRecorder], make_llm: Make, caplog: pytest.LogCaptureFixture
) -> None:
    llm, _, recorder = captured
    decodes = llm._engine.runner._tier.graphs  # type: ignore[union-attr]

    def refuse(run: Any) -> Any:
        raise RuntimeError("out of memory")

    decodes._capture = refuse
    expected = [
        tokens(out) for out in make_llm(attention_backend="reference").generate(PROMPTS[:3], greedy(9), use_tqdm=False)
    ]
    assert [tokens(out) for out in llm.generate(PROMPTS[:3], greedy(9), use_tqdm=False)] == expected
    assert decodes.cascades == [] and decodes.failure == "" and recorder.replays > 5
    warnings = [record.getMessage() for record in caplog.records if record.name == "yaie"]
    assert len(warnings) == 1 and "RuntimeError: out of memory" in warnings[0]
