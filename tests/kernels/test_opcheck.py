"""torch.library.opcheck of every op: schemas that tell what is written, fake versions, tracing with dynamic shapes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import yaie_cuda.ops  # noqa: F401  (registers the ops)

pytestmark = pytest.mark.timeout(280)
ROOT = Path(__file__).parents[2]


def ints(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


def states(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def paged() -> tuple[Tensor, ...]:
    """Caches of four blocks of four tokens, the tables of two sequences, and their lengths."""
    return states(4, 2, 4, 8), states(4, 2, 4, 8), torch.tensor([[1, 0], [3, 2]], dtype=torch.int32), ints(5, 6)


def cascade(lse: Tensor | None) -> tuple[Any, ...]:
    query = states(2, 1, 4, 8)
    keys, values, _, lens = paged()
    tables = torch.tensor([[1, 0], [1, 2]], dtype=torch.int32)
    return query, keys, values, tables, lens, ints(0, 2), ints(4), 2, 0.3, 0.0, None, torch.empty_like(query), lse


def decode(lse: Tensor | None, sinks: Tensor | None) -> tuple[Any, ...]:
    query = states(2, 1, 4, 8)
    return query, *paged(), 0.3, 3, 0.0, sinks, torch.empty_like(query), lse


def prefill(lse: Tensor | None, sinks: Tensor | None) -> tuple[Any, ...]:
    query = states(5, 4, 8)
    keys, values, tables, lens = paged()
    out = torch.empty_like(query)
    return query, keys, values, tables, ints(0, 2, 5), lens, 3, 0.3, 0, 2.0, sinks, out, lse


def cases() -> dict[str, list[tuple[Any, ...]]]:
    """Arguments of each op; those that may be left out are there in one case and not in another."""
    rows, heads, cache, angles = states(3, 8), states(3, 2, 8), states(4, 2, 4, 8), states(3, 8)
    slots, pairs = torch.tensor([1, -1, 9]), torch.tensor([[0, 1]])
    tree = (ints(4, 5), ints(0, 0, 2), ints(1, 2, 2), ints(0, 0), ints(4, 5), ints(0, 1, 2))
    numbers = (torch.ones(3), torch.full((3,), 5), torch.full((3,), 0.9), torch.zeros(3), torch.ones(3).long())
    return {
        "apply_penalties": [(rows, torch.tensor([0, 3, 2]), torch.ones(3), ints(0, 1, 3, 3), *[torch.ones(3)] * 3)],
        "cascade_attention_decode": [cascade(None), cascade(torch.empty(2, 1, 4))],
        "copy_blocks": [([cache, cache.clone()], [cache.clone(), cache.clone()], pairs)],
        "merge_attention_states": [
            (heads, heads[..., 0].clone(), heads.clone(), heads[..., 1].clone(), heads.clone(), heads[..., 0].clone())
        ],
        "paged_attention_decode": [decode(None, None), decode(torch.empty(2, 1, 4), states(4))],
        "paged_attention_prefill": [prefill(None, None), prefill(torch.empty(5, 4), states(4))],
        "radix_match": [(*tree, ints(0, 0), ints(0, 0))],
        "reshape_and_cache": [(heads, heads.clone(), cache, cache.clone(), slots)],
        "rms_norm": [(rows, rows[0].clone(), 1e-6, one, rows.clone()) for one in (None, rows.clone())],
        "rotary_embedding": [(heads.clone(), heads.clone(), angles.cos(), angles.sin(), torch.tensor([0, 2, 1]))],
        "rotary_reshape_and_cache": [
            (heads.clone(), heads, heads.clone(), angles.cos(), angles.sin(), cache, cache.clone(), slots)
        ],
        "silu_and_mul": [(rows, torch.empty(3, 4))],
        "swap_blocks": [([cache, cache.clone()], [cache.clone(), cache.clone()], pairs)],
        "top_k_top_p_sample": [(rows, *numbers, torch.zeros(3).long(), torch.zeros(3).long())],
    }


def registered() -> set[str]:
    """The ops of our namespace, as the dispatcher lists them."""
    names = torch._C._dispatch_get_all_op_names()
    return {name.removeprefix("yaie::").partition(".")[0] for name in names if name.startswith("yaie::")}


def test_every_op_has_a_case() -> None:
    assert set(cases()) == registered()


def test_the_page_of_ops_names_each_and_files_that_exist() -> None:
    page = (ROOT / "docs/ops.md").read_text()
    rows = "".join(line.split("|")[1] for line in page.splitlines() if line.startswith("| `"))
    assert set(re.findall(r"`(\w+)`", rows)) == registered()
    for file in re.findall(r"`([\w/]+\.py)`", page):
        assert any((ROOT / "engine" / home / file).is_file() for home in ("", "yaie_engine")), file


@pytest.mark.parametrize("name", sorted(registered()))
def test_opcheck(name: str) -> None:
    op = getattr(torch.ops.yaie, name).default
    given = cases().get(name, [])
    for at, argument in enumerate(op._schema.arguments):
        if isinstance(argument.type, torch.OptionalType) and argument.alias_info is not None:
            assert {case[at] is None for case in given} == {True, False}, f"{argument.name}: with and without"
    for case in given:
        torch.library.opcheck(op, case)
