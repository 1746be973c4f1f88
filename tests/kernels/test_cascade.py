"""Decodes below a shared prefix: reference, emulated kernels, and the estimate that decides."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import yaie_cuda.ops  # noqa: F401 - defines torch.ops.yaie
from tests.kernels.attention_runs import case, check
from tests.kernels.dense import Problem
from yaie_cuda.cascade import AttentionSize, cascade_attention_decode_kernel, worth_cascading
from yaie_cuda.emulator.launcher import EmulatorLauncher, Options

torch.set_num_threads(1)
pytestmark = pytest.mark.timeout(120)
LLAMA = AttentionSize(32, 8, 128)


class Shared:
    """A problem whose sequences share prefixes: (sequences, shared tokens, suffix tokens of each) per group."""

    def __init__(self, groups: tuple[tuple[int, int, tuple[int, ...]], ...], q_len: int = 1, **more) -> None:
        lens = tuple((q_len, shared + suffix) for _, shared, suffixes in groups for suffix in suffixes)
        self.problem = Problem(case(lens, **more))
        block_size = self.problem.case.block_size
        starts, shared_lens = [0], []
        for sequences, shared, suffixes in groups:
            assert sequences == len(suffixes)
            assert shared % block_size == 0
            first = starts[-1]
            for i in range(first, first + sequences):
                self.problem.tables[i, : shared // block_size] = self.problem.tables[first, : shared // block_size]
                for mine, theirs in ((self.problem.keys, first), (self.problem.values, first)):
                    mine[i] = torch.cat([mine[theirs][:shared], mine[i][shared:]])
                shared_lens.append(shared)
            starts.append(first + sequences)
        self.starts = torch.tensor(starts, dtype=torch.int32)
        self.shared_lens = torch.tensor(shared_lens, dtype=torch.int32)
        self.max_group = max(sequences for sequences, _, _ in groups)

    def run(self, launcher: EmulatorLauncher | None = None, with_lse: bool = True) -> tuple[Tensor, Tensor]:
        """The op's reference, or its kernels."""
        problem = self.problem
        query = torch.stack(problem.queries)
        out = torch.full(query.shape, math.nan, dtype=query.dtype)
        lse = torch.full(query.shape[:3], math.nan)
        arguments = (
            query, problem.key_cache, problem.value_cache, problem.tables, problem.context_lens, self.starts,
            self.shared_lens, self.max_group, problem.scale, problem.case.softcap, problem.sinks, out,
            lse if with_lse else None,
        )  # fmt: skip
        if launcher is None:
            torch.ops.yaie.cascade_attention_decode(*arguments)
        else:
            cascade_attention_decode_kernel(launcher, *arguments)
        return out.flatten(0, 1), lse.flatten(0, 1)


GROUPS = {
    "one": ((5, 64, (1, 16, 17, 40, 3)),),
    "several": ((3, 32, (5, 70, 1)), (1, 0, (30,)), (4, 128, (1, 1, 2, 90)), (1, 0, (1,))),
    "long": ((9, 1024, (1, 2, 3, 4, 5, 6, 7, 300, 9)),),
}


@pytest.mark.parametrize("more", [{}, {"softcap": 3.0, "sinks": True}], ids=["plain", "softcap-sinks"])
@pytest.mark.parametrize("q_len", [1, 3])
@pytest.mark.parametrize("groups", GROUPS)
def test_equals_plain_decode(groups: str, q_len: int, more: dict) -> None:
    suffixed = tuple((n, shared, tuple(s + q_len for s in suffixes)) for n, shared, suffixes in GROUPS[groups])
    shared = Shared(suffixed, q_len, heads=4, kv_heads=2, **more)
    check(shared.problem, shared.run())
    check(shared.problem, shared.run(EmulatorLauncher(Options(schedule="seeded", seed=2, eager_copies=q_len == 3))))


def test_many_rows_take_the_plain_way_and_lse_is_optional() -> None:
    shared = Shared(((2, 32, (9, 10)),), 8, heads=4)
    check(shared.problem, shared.run(EmulatorLauncher()))
    shared = Shared(((2, 32, (9, 10)),), heads=4)
    with_lse, without = shared.run(EmulatorLauncher()), shared.run(EmulatorLauncher(), with_lse=False)
    assert torch.equal(with_lse[0], without[0])


def test_a_wrong_group_bound_is_refused() -> None:
    shared = Shared(((2, 32, (9, 10)),), heads=4)
    shared.max_group = 3
    with pytest.raises(ValueError, match="max_group is 3"):
        shared.run(EmulatorLauncher())


def test_the_estimate_cascades_only_where_it_pays() -> None:
    """64 decodes over 4k shared tokens gain; few sequences, short prefixes and unshared batches do not."""
    assert worth_cascading([(64, 4096)], LLAMA, 64)
    assert worth_cascading([(32, 16384), (32, 16384)], LLAMA, 64)
    assert not worth_cascading([(64, 128)], LLAMA, 64)
    assert not worth_cascading([(2, 512)], LLAMA, 2)
    assert not worth_cascading([(1, 100_000)], LLAMA, 1)
    assert not worth_cascading([], LLAMA, 8)
    assert not worth_cascading([(64, 0)], LLAMA, 64)


@pytest.mark.parametrize("sequences", [2, 8, 64, 256])
def test_the_estimate_grows_with_the_prefix(sequences: int) -> None:
    """Once a prefix is long enough it stays so, until it no longer fits L2, where plain decodes lose more."""
    verdicts = [worth_cascading([(sequences, 2**i)], LLAMA, sequences) for i in range(5, 18)]
    assert verdicts == sorted(verdicts)
