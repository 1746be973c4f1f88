"""Groups of decodes below shared prefixes, when a cascade of them is worth it, and which layers it can serve."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import MistralConfig, MistralForCausalLM

from tests.engine.conftest import Make
from tests.engine.standin import standin, standin_kernels
from tests.engine.test_fused import SIZES
from yaie_engine import EngineConfig
from yaie_engine.backends.base import AttentionCall
from yaie_engine.backends.cascade import CascadeGate, Groups, groups_needed, padded
from yaie_engine.backends.kernel import KernelAttention
from yaie_engine.batch import FlatBatch
from yaie_engine.loader import load_model
from yaie_engine.plan import ScheduledSequence, StepPlan
from yaie_engine.sequence import Sequence
from yaie_engine.sharing import Sharing, each_alone, share

CPU = torch.device("cpu")
LLAMA = (32, 8, 128, 2)


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


@pytest.mark.parametrize(("window", "reason"), [(0, ""), (9, "prefixes are not read together since every"), (12, "")])
def test_a_layer_with_a_window_that_can_matter_decodes_plainly(window: int, reason: str) -> None:
    """And rows of a query that lie apart, as slices of a joint projection do, are the cascade's as well."""
    calls: Counter[str] = Counter()
    plan = plan_of([[1, 2, 3], [1, 2, 4]], [12, 11], 4)
    sharing = share([[1, 2, 3], [1, 2, 4]], [12, 11], 4)
    caches = torch.randn(2, 6, 2, 4, 64)
    query = torch.randn(2, 3 * 4, 64)[:, :4]
    results = []
    backend = KernelAttention(standin_kernels(calls), "emulated")
    backend.gate.longest = 12
    for found in (sharing, None):
        step = backend.step(FlatBatch(plan, 4, CPU, (), found))
        results.append(step.attend(query, caches[0], caches[1], AttentionCall(0.1, window, 0.0, None)))
    assert calls == (
        {"paged_attention_decode": 2} if reason else Counter(cascade_attention_decode=1, paged_attention_decode=1)
    )
    torch.testing.assert_close(results[0], results[1])
    assert backend.gate.shapes == (set() if reason else {(4, 2, 64, 4)})
    assert backend.gate.reason.startswith(reason) and bool(backend.gate.reason) == bool(reason)


def test_status_says_where_prefixes_are_not_read_together(make_llm: Make) -> None:
    gates = [gate(LLAMA), gate(LLAMA), gate((32, 1, 128, 2))]
    gates[1].windowed = True
    assert [one.reason for one in gates] == [
        "",
        "prefixes are not read together in layers with a sliding window",
        "prefixes are not read together: 32 heads share a key head, the cascade takes 16",
    ]
    model = MistralForCausalLM(MistralConfig(**SIZES, sliding_window=48, max_position_embeddings=64)).eval()
    with standin(standin_kernels()):
        for length, said in ((24, False), (48, False), (64, True)):
            config = EngineConfig(attention_backend="emulated", block_size=16, max_model_len=length)
            loaded = load_model(config, model)
            assert ("prefixes are not read together since every layer has a sliding window" in loaded.reason) == said


@pytest.mark.parametrize(("longest", "ever"), [(64, False), (8192, True)])
def test_cascades_that_can_never_be_worth_it_are_not_captured(longest: int, ever: bool) -> None:
    one = gate(LLAMA)
    one.longest = longest
    assert one.ever(64, 16) == ever and not gate().ever(64, 16)
