"""How the tensors of attention may lie in memory: what the kernels take, and what they leave to the reference."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import yaie_cuda.ops  # noqa: F401 - defines torch.ops.yaie
from tests.kernels.attention_runs import case, check, decode, prefill
from tests.kernels.dense import Problem
from yaie_cuda import attention
from yaie_cuda.cascade import cascade_attention_decode_kernel
from yaie_cuda.checks import UnservedError
from yaie_cuda.emulator.launcher import EmulatorLauncher
from yaie_cuda.kernel import Specialisation

torch.set_num_threads(1)
REFUSED = r"contiguous|one run|strides"
pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def emulated() -> EmulatorLauncher:
    return EmulatorLauncher()


def fused(query: Tensor) -> Tensor:
    """The same numbers, cut out of [tokens, query heads and others, head_dim], as a fused projection gives them."""
    flat = query.flatten(0, 1)
    wide = torch.cat([flat, torch.full_like(flat[:, :1], math.nan)], 1)[:, : flat.shape[1]]
    return wide.unsqueeze(1) if query.shape[1] == 1 else wide.view(*query.shape[:2], *wide.shape[1:])


def odd_strides(tensor: Tensor) -> Tensor:
    """The same numbers; every dimension of size 1 has a stride that means nothing."""
    return tensor.as_strided(
        tensor.shape, [7 if n == 1 else s for n, s in zip(tensor.shape, tensor.stride(), strict=True)]
    )


@pytest.mark.parametrize("heads", [4, 32])
@pytest.mark.parametrize("q_len", [1, 2])
def test_queries_cut_out_of_a_fused_projection(emulated: EmulatorLauncher, q_len: int, heads: int) -> None:
    """With q_len 1 the stride between tokens of a sequence means nothing, for either kernel."""
    problem = Problem(case(((q_len, 40), (q_len, 70)), heads=heads))
    check(problem, decode(emulated, problem, query=fused(torch.stack(problem.queries))))


@pytest.mark.parametrize("heads", [1, 32])
@pytest.mark.parametrize("sequences", [1, 2])
def test_strides_of_single_places_mean_nothing(emulated: EmulatorLauncher, sequences: int, heads: int) -> None:
    problem = Problem(case(((1, 16),) * sequences, heads=heads))
    caches = {"key_cache": odd_strides(problem.key_cache), "value_cache": problem.value_cache}
    check(problem, decode(emulated, problem, query=odd_strides(torch.stack(problem.queries)), **caches))
    check(problem, prefill(emulated, problem, query=odd_strides(torch.cat(problem.queries)), **caches))


def test_a_single_block(emulated: EmulatorLauncher) -> None:
    problem = Problem(case(((1, 16),), heads=2))
    block = int(problem.tables[0, 0])
    keys, values = (cache[block : block + 1] for cache in (problem.key_cache, problem.value_cache))
    tables = torch.zeros(1, 1, dtype=torch.int32)
    got = decode(emulated, problem, key_cache=odd_strides(keys), value_cache=values, block_tables=tables)
    check(problem, got)


def arguments(q_len: int = 1, heads: int = 4) -> dict[str, Any]:
    """Those of a decode."""
    problem = Problem(case(((q_len, 40), (q_len, 70)), heads=heads, sinks=True))
    query = torch.stack(problem.queries)
    return {
        "query": query, "key_cache": problem.key_cache, "value_cache": problem.value_cache,
        "block_tables": problem.tables, "context_lens": problem.context_lens, "scale": problem.scale,
        "sliding_window": 0, "softcap": 0.0, "sinks": problem.sinks, "out": torch.empty_like(query),
        "lse": torch.empty(query.shape[:3]),
    }  # fmt: skip


def spread(tensor: Tensor) -> Tensor:
    """The same numbers, with as many others between them."""
    return torch.stack([tensor, tensor], -1)[..., 0]


@pytest.mark.parametrize("name", ["out", "lse", "sinks", "context_lens", "block_tables", "query", "key_cache"])
def test_what_does_not_lie_in_one_run_is_left_to_the_reference(emulated: EmulatorLauncher, name: str) -> None:
    given = arguments()
    given[name] = spread(given[name])
    with pytest.raises(UnservedError, match=REFUSED):
        attention.paged_attention_decode_kernel(emulated, **given)
    starts = torch.arange(3, dtype=torch.int32)
    chunked = {one: value.squeeze(1) if one in ("query", "out", "lse") else value for one, value in given.items()}
    with pytest.raises(UnservedError, match=REFUSED):
        attention.paged_attention_prefill_kernel(emulated, **chunked, cu_seqlens_q=starts, max_seqlen_q=1)
    del given["sliding_window"]
    groups = {"group_starts": torch.tensor([0, 2], dtype=torch.int32), "shared_lens": torch.zeros(2, dtype=torch.int32)}
    with pytest.raises(UnservedError, match=REFUSED):
        cascade_attention_decode_kernel(emulated, **given, **groups, max_group=2)


def test_tokens_at_no_one_distance_are_left_to_the_reference(emulated: EmulatorLauncher) -> None:
    given = arguments(q_len=2, heads=16)
    given["query"] = torch.cat([given["query"]] * 2, 1)[:, :2]
    with pytest.raises(UnservedError, match="one distance"):
        attention.paged_attention_decode_kernel(emulated, **given)


class Named(EmulatorLauncher):
    """Notes which kernels run."""

    def launch(self, specialisation: Specialisation, grid: tuple[int, int, int], params: Any) -> None:
        self.names = [*getattr(self, "names", []), specialisation.kernel.name]
        super().launch(specialisation, grid, params)


def test_a_cascade_takes_a_fused_query() -> None:
    given = arguments()
    del given["sliding_window"]
    given["query"] = fused(given["query"])
    given["block_tables"][1, :2] = given["block_tables"][0, :2]
    groups = {"group_starts": [0, 2], "shared_lens": [32, 32]}
    launcher = Named()
    more = {name: torch.tensor(value, dtype=torch.int32) for name, value in groups.items()}
    cascade_attention_decode_kernel(launcher, **given, **more, max_group=2)
    assert launcher.names == ["paged_attention_prefill", "paged_attention_decode", "merge_attention_states"]
    got = given["out"].clone()
    torch.ops.yaie.cascade_attention_decode(*[{**given, **more, "max_group": 2}[name] for name in ORDER])
    torch.testing.assert_close(got, given["out"], atol=2e-2, rtol=2e-2)


ORDER = (
    "query", "key_cache", "value_cache", "block_tables", "context_lens", "group_starts", "shared_lens", "max_group",
    "scale", "softcap", "sinks", "out", "lse",
)  # fmt: skip
