"""Decodes below shared prefixes: which are grouped, when it is worth it, and that every row gets its own answer."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.conftest import Make
from tests.engine.fakes import LONG, assert_idle, greedy, tokens
from tests.engine.graph_recorder import GraphRecorder
from tests.engine.standin import REFERENCES, standin, standin_kernels
from yaie_engine import LLM, ConfigError, graphs
from yaie_engine.backends.base import AttentionCall
from yaie_engine.backends.cascade import CascadeGate, Groups, groups_needed, padded
from yaie_engine.backends.kernel import KernelAttention
from yaie_engine.batch import FlatBatch
from yaie_engine.plan import ScheduledSequence, StepPlan
from yaie_engine.runner import ModelRunner
from yaie_engine.sequence import Sequence
from yaie_engine.sharing import Sharing, each_alone, share

CPU = torch.device("cpu")
LLAMA = (32, 8, 128, 2)
HEAD = [(7 * i * i + 3 * i) % 250 for i in range(37)]
PROMPTS = [[*HEAD, *range(i, 3 * i + 1)] for i in range(5)]


def plan_of(tables: list[list[int]], contexts: list[int], block_size: int = 16) -> StepPlan:
    """One decode per table."""
    plan = StepPlan(1)
    for number, (table, length) in enumerate(zip(tables, contexts, strict=True)):
        seq = Sequence(number, str(number), [number] * length, length, 1, block_table=table)
        plan.batch.append(ScheduledSequence(seq, length - 1, 1, length - 1, "decode", True))
    return plan


def decodes_below(prefix: int, count: int, alone: int = 0, block_size: int = 16) -> StepPlan:
    """`count` decodes over `prefix` shared tokens and 100 of their own, and `alone` unrelated ones before them."""
    blocks, own, used = prefix // block_size, -(-100 // block_size), 100_000
    tables = [list(range(20_000 * (i + 10), 20_000 * (i + 10) + blocks + own)) for i in range(alone)]
    for _ in range(count):
        tables.append([*range(blocks), *range(used, used + own)])
        used += own
    return plan_of(tables, [prefix + 100] * len(tables))


# ---- groups


@pytest.mark.parametrize(
    ("tables", "contexts", "order", "groups"),
    [
        ([[1, 2, 3], [1, 2, 4]], [12, 12], (0, 1), [(2, 8)]),
        ([[9, 2], [1, 2, 3], [8], [1, 2, 4]], [8, 12, 3, 9], (1, 3, 0, 2), [(2, 8), (2, 0)]),
        ([[1, 2], [1, 2]], [8, 8], (0, 1), [(2, 4)]),  # the block of the token itself is not shared
        ([[1, 2], [1, 2]], [9, 8], (0, 1), [(2, 4)]),
        ([[1, 2, 3], [5, 2, 3], [1, 7, 3]], [12] * 3, (0, 2, 1), [(2, 4), (1, 0)]),  # equal from the start only
        ([[1, 2, 3, 4, 5], [1, 2, 3, 4, 6], [1, 7]], [20, 20, 8], (0, 1, 2), [(2, 16), (1, 0)]),  # 4 reads, not 2
        ([[1, 2, 3], [1, 2, 4], [1, 5], [1, 6]], [12, 12, 8, 8], (0, 1, 2, 3), [(4, 4)]),  # 3 reads, not 2
        ([[1, 2, 0], [3, 4, 0], [1, 2, 5], [3, 4, 6]], [12] * 4, (0, 2, 1, 3), [(2, 8), (2, 8)]),
    ],
)
def test_groups(tables: list[list[int]], contexts: list[int], order: tuple[int, ...], groups: list[Any]) -> None:
    sharing = share(tables, contexts, 4)
    assert sharing is not None
    assert (sharing.order, sharing.groups) == (order, groups)


@pytest.mark.parametrize("contexts", [[1, 1], [4, 4], [4, 9]])
def test_short_contexts_share_nothing(contexts: list[int]) -> None:
    assert share([[1, 2, 3], [1, 2, 3]], contexts, 4) is None
    assert share([[1, 2, 3], [4, 5, 6]], [12, 12], 4) is None
    assert share([[1, 2, 3]], [12], 4) is None


def reads(tables: list[list[int]], contexts: list[int], depth: int) -> int:
    """Blocks that need not be read again when everybody is grouped at one depth."""
    heads = Counter(tuple(t[:depth]) for t, c in zip(tables, contexts, strict=True) if (c - 1) // 4 >= depth)
    return sum((count - 1) * depth for count in heads.values())


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=8), max_size=9), st.data())
def test_groups_share_what_they_say_and_save_at_least_as_much_as_any_depth(tables: list[list[int]], data: Any) -> None:
    contexts = [data.draw(st.integers(4 * len(table) - 3, 4 * len(table))) for table in tables]
    sharing = share(tables, contexts, 4)
    most = max((reads(tables, contexts, depth) for depth in range(1, 9)), default=0)
    if sharing is None:
        assert most == 0
        return
    assert sorted(sharing.order) == list(range(len(tables)))
    saved = 0
    for start, (count, tokens_shared) in zip(sharing.starts, sharing.groups, strict=False):
        rows = sharing.order[start : start + count]
        depth, rest = divmod(tokens_shared, 4)
        assert rest == 0 and len({tuple(tables[row][:depth]) for row in rows}) == 1
        assert all(tokens_shared < contexts[row] for row in rows)
        assert not depth or count > 1
        saved += (count - 1) * depth
    assert saved >= most


def test_grouping_is_quick() -> None:
    """64 tables of 256 blocks take some 50 microseconds: the bound leaves room for a busy machine."""
    plan = decodes_below(240 * 16, 64)
    tables, contexts = [e.seq.block_table for e in plan.batch], [e.stop for e in plan.batch]
    best = 1.0
    for _ in range(30):
        start = time.perf_counter()
        assert share(tables, contexts, 16) is not None
        best = min(best, time.perf_counter() - start)
    print(f"{best * 1e6:.0f} us")
    assert best < 1e-3


# ---- the gate


def gate(*shapes: tuple[int, int, int, int]) -> CascadeGate:
    return CascadeGate(shapes=set(shapes))


def test_a_long_prefix_of_many_decodes_is_worth_it() -> None:
    sharing = gate(LLAMA).choose(decodes_below(4096, 64, alone=2), 16, replayed=True)
    assert sharing is not None
    assert sharing.groups == [(64, 4096), (2, 0)]
    assert sharing.order == (*range(2, 66), 0, 1)


@pytest.mark.parametrize(
    ("prefix", "count", "shapes"),
    [
        (128, 64, [LLAMA]),  # too short to pay for two more launches
        (512, 2, [LLAMA]),
        (4096, 1, [LLAMA]),
        (0, 64, [LLAMA]),
        (4096, 64, []),  # no layer has told its shape, or all have a window
        (4096, 64, [(32, 1, 128, 2)]),  # 32 heads on one key head: the op would take the plain way
        (4096, 64, [LLAMA, (8, 8, 64, 2), (32, 1, 64, 2)]),  # one layer of several shapes does not gain
    ],
)
def test_what_does_not_pay_is_left_alone(prefix: int, count: int, shapes: list[Any]) -> None:
    assert gate(*shapes).choose(decodes_below(prefix, count), 16, replayed=True) is None


def test_a_step_launched_from_python_must_save_more() -> None:
    """What a replay wins by is less than what Python takes for the further launches."""
    few, many = decodes_below(2048, 32), decodes_below(8192, 64)
    assert gate(LLAMA).choose(few, 16, replayed=True) is not None
    assert gate(LLAMA).choose(few, 16, replayed=False) is None
    assert gate(LLAMA).choose(many, 16, replayed=False) is not None


def test_groups_are_not_looked_for_where_all_that_is_read_is_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("yaie_engine.backends.cascade.share", lambda *_: pytest.fail("looked for groups"))
    assert gate(LLAMA).choose(decodes_below(512, 8), 16, replayed=True) is None


# ---- rows


def test_rows_lie_in_the_order_of_their_groups_and_logits_return_to_the_plan() -> None:
    plan = plan_of([[9, 2], [1, 2, 3], [8], [1, 2, 4]], [8, 12, 3, 9])
    chunk = Sequence(7, "7", [50, 51, 52], 3, 1, block_table=[6])
    plan.batch.insert(1, ScheduledSequence(chunk, 0, 3, 0, "prefill", True))
    singles = [entry for entry in plan.batch if entry.num_tokens == 1]
    sharing = share([entry.seq.block_table for entry in singles], [entry.stop for entry in singles], 4)
    batch = FlatBatch(plan, 4, CPU, (), sharing)
    assert batch.ids == [1, 3, 0, 2, 50, 51, 52]
    assert batch.contexts == [12, 9, 8, 3, 3]
    logits = torch.tensor(batch.ids, dtype=torch.float32)[batch.keep].unsqueeze(1)
    assert batch.split(logits).logits.flatten().tolist() == [0, 52, 1, 2, 3]


def test_groups_of_a_captured_step_are_padded() -> None:
    sharing = Sharing((1, 3, 0, 2), (0, 2, 4), (8, 0))
    assert padded(sharing, 4, 8) == [0, 2, 4, 8, 8, 8, 8, 0, 0, 0, 0, 0, 0]
    assert padded(sharing, 2, 8) == [0, 2, 8, 8, 8, 0, 0, 0, 0, 0, 0]
    assert padded(sharing, 2, 4) == [0, 2, 4, 8, 8, 0, 0]
    assert [groups_needed(sharing, rows) for rows in (4, 8)] == [2, 2]  # padding joins those alone
    assert [groups_needed(Sharing((0, 1), (0, 2), (8,)), rows) for rows in (2, 4)] == [1, 2]
    room = Groups.room(4, 8, CPU)
    room.flat.copy_(torch.tensor(padded(sharing, 4, 8)))
    assert (room.starts.tolist(), room.shared_lens.tolist()) == ([0, 2, 4, 8, 8], [8, 8, 0, 0, 0, 0, 0, 0])
    assert each_alone([39, 16], 16) == Sharing((0, 1), (0, 1, 2), (32, 0))


@pytest.mark.parametrize("window", [0, 9])
def test_a_layer_with_a_window_decodes_plainly(window: int) -> None:
    """And rows of a query that lie apart, as slices of a joint projection do, are the cascade's as well."""
    calls: Counter[str] = Counter()
    plan = plan_of([[1, 2, 3], [1, 2, 4]], [12, 11], 4)
    sharing = share([[1, 2, 3], [1, 2, 4]], [12, 11], 4)
    caches = torch.randn(2, 6, 2, 4, 64)
    query = torch.randn(2, 3 * 4, 64)[:, :4]
    results = []
    backend = KernelAttention(standin_kernels(calls), "emulated")
    for found in (sharing, None):
        step = backend.step(FlatBatch(plan, 4, CPU, (), found))
        results.append(step.attend(query, caches[0], caches[1], AttentionCall(0.1, window, 0.0, None)))
    assert calls == (
        {"paged_attention_decode": 2} if window else Counter(cascade_attention_decode=1, paged_attention_decode=1)
    )
    torch.testing.assert_close(results[0], results[1])
    assert backend.gate.shapes == (set() if window else {(4, 2, 64, 4)})


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
def captured(start: Start, monkeypatch: pytest.MonkeyPatch) -> tuple[LLM, Watch, GraphRecorder]:
    """The engine with recorded decodes; a cascade is captured the second time that it is asked for."""
    monkeypatch.setattr(graphs, "PATIENCE", 2)
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
