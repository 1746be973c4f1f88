"""The kernels of the paged cache, emulated, against the reference; and swapping on the CPU."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product

import pytest
import torch
from torch import Tensor

import yaie_cuda.ops  # noqa: F401 - defines torch.ops.yaie
from yaie_cuda import cache, reference
from yaie_cuda.emulator.launcher import EmulatorLauncher, Options
from yaie_cuda.paging import WriteIndex

pytestmark = pytest.mark.timeout(600)
DTYPES = (torch.bfloat16, torch.float16, torch.float32)


@pytest.fixture(scope="module")
def launcher() -> EmulatorLauncher:
    return EmulatorLauncher()


def nans(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """A cache that nobody has written."""
    return torch.full(shape, math.nan, dtype=dtype)


def assert_same(got: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(got, wanted, rtol=0, atol=0, equal_nan=True)


def scattered_slots(num_tokens: int, num_slots: int, draw: torch.Generator) -> Tensor:
    """Distinct slots in no order; every fourth token is not written."""
    slots = torch.randperm(num_slots, generator=draw)[:num_tokens]
    slots[3::4] = -1
    return slots


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("num_tokens", "heads", "key_dim", "value_dim", "block_size"),
    [(1, 1, 128, 128, 16), (37, 2, 64, 64, 16), (5, 3, 80, 96, 32), (7, 2, 4, 12, 5), (9, 1, 7, 3, 1)],
)
def test_reshape_and_cache(
    launcher: EmulatorLauncher,
    dtype: torch.dtype,
    num_tokens: int,
    heads: int,
    key_dim: int,
    value_dim: int,
    block_size: int,
) -> None:
    draw = torch.Generator().manual_seed(0)
    key = torch.randn(num_tokens, heads, key_dim, generator=draw).to(dtype)
    value = torch.randn(num_tokens, heads, value_dim, generator=draw).to(dtype)
    num_blocks = -(-num_tokens // block_size) + 2
    slots = scattered_slots(num_tokens, num_blocks * block_size, draw)
    caches = [nans(num_blocks, heads, block_size, dim, dtype=dtype) for dim in (key_dim, value_dim)]
    wanted = [each.clone() for each in caches]
    reference.write_cache(key, value, wanted[0], wanted[1], WriteIndex(slots, block_size))
    cache.reshape_and_cache_kernel(launcher, key, value, caches[0], caches[1], slots)
    for got, want in zip(caches, wanted, strict=True):
        assert_same(got, want)


def test_states_that_are_views(launcher: EmulatorLauncher) -> None:
    """Heads first, as transformers has them, and key beside value in one tensor: no copy is made."""
    draw = torch.Generator().manual_seed(1)
    key = torch.randn(3, 11, 32, generator=draw).transpose(0, 1)
    value = torch.randn(11, 3, 96, generator=draw)[:, :, 33:65]  # not even aligned to 16 bytes
    slots = torch.tensor([5, -1, 0, 1, 2, 31, 16, 17, 20, -1, 9])
    caches, wanted = [nans(2, 3, 16, 32) for _ in range(2)], [nans(2, 3, 16, 32) for _ in range(2)]
    reference.write_cache(key, value, wanted[0], wanted[1], WriteIndex(slots, 16))
    cache.reshape_and_cache_kernel(launcher, key, value, caches[0], caches[1], slots)
    assert_same(caches[0], wanted[0])
    assert_same(caches[1], wanted[1])


@pytest.mark.parametrize("slots", [[], [-1, -1, -1]])
def test_nothing_is_written(launcher: EmulatorLauncher, slots: list[int]) -> None:
    states, empty = torch.randn(len(slots), 2, 8), nans(2, 2, 4, 8)
    cache.reshape_and_cache_kernel(
        launcher, states, states, empty, empty.clone(), torch.tensor(slots, dtype=torch.int64)
    )
    assert empty.isnan().all()


@pytest.mark.parametrize(("scalar", "table"), [*zip(DTYPES, DTYPES, strict=True), (torch.bfloat16, torch.float32)])
@pytest.mark.parametrize(("head_dim", "rotary_dim", "value_dim"), [(64, 64, 64), (80, 32, 48), (12, 6, 5)])
def test_rotary_reshape_and_cache(
    launcher: EmulatorLauncher,
    scalar: torch.dtype,
    table: torch.dtype,
    head_dim: int,
    rotary_dim: int,
    value_dim: int,
) -> None:
    draw = torch.Generator().manual_seed(2)
    num_tokens, heads, kv_heads, block_size = 9, 4, 2, 16
    query = torch.randn(heads, num_tokens, head_dim, generator=draw).to(scalar).transpose(0, 1)
    key = torch.randn(num_tokens, kv_heads, head_dim, generator=draw).to(scalar)
    value = torch.randn(num_tokens, kv_heads, value_dim, generator=draw).to(scalar)
    angles = torch.randn(num_tokens, rotary_dim, generator=draw)
    cos, sin = angles.cos().to(table), angles.sin().to(table)
    slots = scattered_slots(num_tokens, 3 * block_size, draw)
    caches = [nans(3, kv_heads, block_size, dim, dtype=scalar) for dim in (head_dim, value_dim)]
    wanted, wanted_query, before = [each.clone() for each in caches], query.clone(), key.clone()
    reference.rotary_reshape_and_cache(wanted_query, key, value, cos, sin, wanted[0], wanted[1], slots)
    cache.rotary_reshape_and_cache_kernel(launcher, query, key, value, cos, sin, caches[0], caches[1], slots)
    for got, want in ((query, wanted_query), (key, before), (caches[0], wanted[0]), (caches[1], wanted[1])):
        assert_same(got, want)


def test_copy_blocks_in_all_layers_at_once(launcher: EmulatorLauncher) -> None:
    """Caches of several sizes, one larger than what a block of threads copies; a pair with -1 is left out."""
    draw = torch.Generator().manual_seed(3)
    shapes = [(6, 2, 16, 16), (6, 1, 4, 8), (6, 4, 32, 64)]
    keys = [torch.randn(shape, generator=draw) for shape in shapes]
    values = [torch.randn(shape, generator=draw).to(torch.bfloat16) for shape in shapes]
    mapping = torch.tensor([[0, 3], [0, 4], [-1, 2], [5, 1], [3, -1]])
    wanted = [each.clone() for each in (*keys, *values)]
    reference.copy_blocks(wanted[:3], wanted[3:], mapping)
    cache.copy_blocks_kernel(launcher, keys, values, mapping)
    for got, want in zip((*keys, *values), wanted, strict=True):
        assert_same(got, want)


def test_copying_no_block(launcher: EmulatorLauncher) -> None:
    only = torch.randn(2, 1, 4, 8)
    cache.copy_blocks_kernel(launcher, [only], [only.clone()], torch.empty(0, 2, dtype=torch.int64))
    cache.copy_blocks_kernel(launcher, [], [], torch.tensor([[0, 1]]))


def test_runs_of_neighbours_are_merged() -> None:
    pairs = [(7, 2), (3, 10), (4, 11), (5, 12), (6, 1), (-1, 0), (9, -1), (8, 3)]
    assert list(cache.merged_runs(pairs)) == [(3, 10, 3), (6, 1, 3)]
    assert list(cache.merged_runs([])) == []


def test_swap_blocks_moves_what_the_reference_moves() -> None:
    draw = torch.Generator().manual_seed(4)
    sources = [torch.randn(8, 2, 4, dim, generator=draw) for dim in (8, 8, 16)]
    mapping = torch.tensor([[2, 0], [3, 1], [-1, 4], [7, 5], [0, 3]])
    wanted, got = ([nans(6, *source.shape[1:]) for source in sources] for _ in range(2))
    reference.swap_blocks(sources, wanted, mapping)
    torch.ops.yaie.swap_blocks(sources, got, mapping)
    for one, other in zip(got, wanted, strict=True):
        assert_same(one, other)
        assert other[2].isnan().all() and other[4].isnan().all()


def _write(**changes: Tensor) -> Callable[[EmulatorLauncher], None]:
    arguments = {
        "key": torch.zeros(3, 2, 8),
        "value": torch.zeros(3, 2, 8),
        "key_cache": torch.zeros(2, 2, 4, 8),
        "value_cache": torch.zeros(2, 2, 4, 8),
        "slot_mapping": torch.zeros(3, dtype=torch.int64),
        **changes,
    }
    return lambda launcher: cache.reshape_and_cache_kernel(launcher, *arguments.values())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (_write(key=torch.zeros(3, 16)), r"key has shape \[3, 16\], expected \[num_tokens, num_kv_heads, head_dim\]"),
        (_write(value=torch.zeros(4, 2, 8)), r"value has shape \[4, 2, 8\], expected \[3, 2, value_dim\]"),
        (_write(slot_mapping=torch.zeros(3, dtype=torch.int32)), "slot_mapping is int32, expected int64"),
        (_write(key_cache=torch.zeros(2, 2, 8, 4).transpose(2, 3)), "key_cache is not contiguous"),
        (_write(value_cache=torch.zeros(2, 2, 5, 8)), r"value_cache has shape \[2, 2, 5, 8\], expected \[2, 2, 4, 8\]"),
        (_write(value=torch.zeros(3, 2, 8).half()), "value is float16 and key is float32"),
        (_write(key=torch.zeros(3, 2, 16)[:, :, ::2]), "the last dimension of key has stride 2, expected 1"),
    ],
)
def test_bad_writes(launcher: EmulatorLauncher, call: Callable[[EmulatorLauncher], None], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(launcher)


def test_bad_copies_and_swaps(launcher: EmulatorLauncher) -> None:
    small, pairs = torch.zeros(2, 1, 1, 3), torch.zeros(1, 2, dtype=torch.int64)
    with pytest.raises(ValueError, match="a block of 12 bytes at 0x"):
        cache.copy_blocks_kernel(launcher, [small], [], pairs)
    with pytest.raises(ValueError, match=r"block_mapping has shape \[2\], expected \[n, 2\]"):
        cache.copy_blocks_kernel(launcher, [small], [], pairs[0])
    with pytest.raises(ValueError, match="1 sources and 0 destinations"):
        torch.ops.yaie.swap_blocks([small], [], pairs)
    with pytest.raises(ValueError, match="a destination is float16, expected float32"):
        torch.ops.yaie.swap_blocks([small], [small.half()], pairs)


@pytest.mark.parametrize("sanitizer", ["address", "thread"])
def test_under_a_sanitizer(sanitizer: str) -> None:
    checked = EmulatorLauncher(Options(sanitizer=sanitizer))  # type: ignore[arg-type]
    draw = torch.Generator().manual_seed(5)
    query, key = (torch.randn(5, heads, 16, generator=draw) for heads in (4, 2))
    cos, slots = torch.randn(5, 16, generator=draw), torch.tensor([0, 7, -1, 8, 15])
    caches = [nans(4, 2, 4, 16) for _ in range(2)]
    wanted, wanted_query = [each.clone() for each in caches], query.clone()
    reference.rotary_reshape_and_cache(wanted_query, key, key, cos, cos, wanted[0], wanted[1], slots)
    mapping = torch.tensor([[0, 1], [-1, 1]])
    checked.watch(query, key, cos, slots, *caches, *cache.cache_table(caches), mapping)
    cache.reshape_and_cache_kernel(checked, key, key, caches[0], caches[1], slots)
    cache.rotary_reshape_and_cache_kernel(checked, query, key, key, cos, cos, caches[0], caches[1], slots)
    assert_same(query, wanted_query)
    assert_same(caches[0], wanted[0])
    cache.copy_blocks_kernel(checked, caches[:1], caches[1:], mapping)
    assert_same(caches[1][1], caches[1][0])


@pytest.mark.full
@pytest.mark.parametrize(
    ("dtype", "heads", "dim", "block_size"), list(product(DTYPES, (1, 4, 8), (64, 80, 96, 128, 256), (1, 16, 32)))
)
def test_every_size_of_head(
    launcher: EmulatorLauncher, dtype: torch.dtype, heads: int, dim: int, block_size: int
) -> None:
    test_reshape_and_cache(launcher, dtype, 35, heads, dim, dim, block_size)
