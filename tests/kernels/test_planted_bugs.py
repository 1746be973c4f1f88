"""Mistakes planted in a small kernel, one at a time: each is caught, and the kernel without them passes everything.

The kernel smooths a long row: a block walks over its part tile by tile, with two tiles in flight, every value becomes
the sum of itself and its right neighbour, and the last block to finish adds up what all blocks have summed.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

from yaie_cuda.emulator.launcher import EmulatorLauncher, Options
from yaie_cuda.errors import EmulatorError
from yaie_cuda.kernel import Kernel

pytestmark = pytest.mark.timeout(300)

SMOOTH = """
#include "warp.cuh"
struct Params {
    const float* input;  // [gridDim.x, tiles, THREADS * 4]
    float* out;          // the same
    float* sums;         // [gridDim.x]
    float* total;        // [1]
    int32_t* finished;   // [1], 0
    int32_t tiles;
    int32_t count;       // of input; what lies behind it reads as 0
};
static_assert(sizeof(Params) == PARAMS_BYTES);
constexpr int kTile = THREADS * 4;

extern "C" __global__ void __launch_bounds__(THREADS) smooth(const __grid_constant__ Params p) {
    DYNAMIC_SHARED(shared);
    float* stages = reinterpret_cast<float*>(shared);  // [2, kTile]
    float* partial = stages + 2 * kTile;               // [THREADS / 32]
    __shared__ int last;
    const int mine = threadIdx.x * 4;
    auto copy = [&](int tile) {
        const int from = (blockIdx.x * p.tiles + tile) * kTile + mine;
        cp_async_16(stages + tile % 2 * kTile + mine, p.input + from, from < p.count);
        cp_async_commit();
    };
    float sum = 0.f;
    copy(0);
    for (int j = 0; j < p.tiles; ++j) {
        if (j + 1 < p.tiles) copy(j + 1);
        j + 1 < p.tiles ? cp_async_wait<1>() : cp_async_wait<0>();
        __syncthreads();  // copied
        const float* tile = stages + j % 2 * kTile;
        const int start = (blockIdx.x * p.tiles + j) * kTile;
        for (int i = 0; i < 4; ++i) {
            const float right = mine + i + 1 < kTile ? tile[mine + i + 1] : 0.f;
            if (start + mine + i < p.count) p.out[start + mine + i] = tile[mine + i] + right;
            sum += tile[mine + i];
        }
        __syncthreads();  // free
    }
    for (int distance = 16; distance; distance /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
    __syncthreads();  // summed
    if (threadIdx.x == 0) {
        float all = 0.f;
        for (int i = 0; i < THREADS / 32; ++i) all += partial[i];
        p.sums[blockIdx.x] = all;
        __threadfence();  // published
        last = atomicAdd(p.finished, 1) == int(gridDim.x) - 1;
        if (last) {
            __threadfence();
            float total = 0.f;
            for (int i = 0; i < int(gridDim.x); ++i) total += p.sums[i];
            *p.total = total;
        }
    }
}
"""
KERNEL = Kernel(
    "smooth",
    (*((name, "p") for name in ("input", "out", "sums", "total", "finished")), ("tiles", "i"), ("count", "i")),
)
THREADS, BLOCKS, TILES = 64, 3, 4
COUNT = BLOCKS * TILES * THREADS * 4 - 20
PLAIN = Options()
AHEAD = Options(schedule="warp_ahead", eager_copies=True)
RANDOM = Options(schedule="seeded", seed=7)
BOUNDS = Options(sanitizer="address")
RACES = Options(sanitizer="thread")
EAGER_RACES = Options(sanitizer="thread", eager_copies=True)


def smooth(source: str, options: Options) -> None:
    """Run the kernel; raises EmulatorError, or AssertionError when the result is wrong."""
    given = torch.randn(COUNT, generator=torch.Generator().manual_seed(3))
    out, sums, total = torch.zeros(COUNT), torch.zeros(BLOCKS), torch.zeros(1)
    finished = torch.zeros(1, dtype=torch.int32)
    launcher = EmulatorLauncher(options, {"smooth": source})
    launcher.watch(given, out, sums, total, finished)
    pointers = {"input": given, "out": out, "sums": sums, "total": total, "finished": finished}
    params = KERNEL.params(**{name: one.data_ptr() for name, one in pointers.items()}, tiles=TILES, count=COUNT)
    shared = (2 * THREADS * 4 + THREADS // 32) * 4
    launcher.launch(KERNEL.specialise(THREADS, shared), (BLOCKS, 1, 1), params)
    padded = torch.cat([given, torch.zeros(20)]).view(-1, THREADS * 4)
    right = torch.cat([padded[:, 1:], torch.zeros(len(padded), 1)], 1)
    torch.testing.assert_close(out, (padded + right).flatten()[:COUNT])
    torch.testing.assert_close(total, given.sum().view(1), rtol=1e-4, atol=1e-4)


WRONG, RACE, OVERFLOW = (
    "Tensor-likes are not",
    r"data race at smooth\.cu:\d+",
    r"heap-buffer-overflow at smooth\.cu:\d+",
)


@dataclass(frozen=True)
class Bug:
    """A mistake: what is replaced by what, the way of running that shows it, and what is said."""

    name: str
    old: str
    new: str
    options: Options
    said: str


BUGS = (
    Bug("no wait for the copies", "j + 1 < p.tiles ? cp_async_wait<1>() : cp_async_wait<0>();", "", PLAIN, WRONG),
    Bug("a wait for too few copies", "cp_async_wait<1>() :", "cp_async_wait<2>() :", PLAIN, WRONG),
    Bug("no barrier after the copies", "__syncthreads();  // copied", "", PLAIN, WRONG),
    Bug("no barrier after the copies, as a race", "__syncthreads();  // copied", "", RACES, RACE),
    Bug("no barrier before reuse", "__syncthreads();  // free", "", AHEAD, WRONG),
    Bug("no barrier before reuse, as a race", "__syncthreads();  // free", "", RACES, RACE),
    Bug("no barrier between warps", "__syncthreads();  // summed", "", PLAIN, WRONG),
    Bug("no barrier between warps, as a race", "__syncthreads();  // summed", "", RACES, RACE),
    Bug("no fence between blocks", "__threadfence();  // published", "", RACES, RACE),
    Bug("no atomic between blocks", "atomicAdd(p.finished, 1)", "(*p.finished)++", RACES, RACE),
    Bug("off by one", "mine + i + 1 < kTile ? tile[mine + i + 1]", "mine + i < kTile ? tile[mine + i]", PLAIN, WRONG),
    Bug("the bound off by one", "start + mine + i < p.count", "start + mine + i <= p.count", BOUNDS, OVERFLOW),
    Bug("a mask that keeps too much", "from < p.count", "from < p.count + 4", BOUNDS, "reads past its buffer"),
    Bug("a mask that drops the last", "from < p.count", "from + 4 < p.count", PLAIN, WRONG),
    Bug("shared memory past its end", "partial[threadIdx.x / 32] = sum", "partial[threadIdx.x / 32 + 1] = sum", PLAIN,
        r"wrote byte 2056 of 2056 bytes of shared memory"),
    Bug("shared memory past its end, at the line", "partial[threadIdx.x / 32] = sum",
        "partial[threadIdx.x / 32 + 1] = sum", BOUNDS, r"use-after-poison at smooth\.cu:\d+"),
    Bug("a read of shared memory past its end", "? tile[mine + i + 1]", "? tile[mine + i + 1 + 1024]", BOUNDS,
        r"smooth\.cu:\d+"),
    Bug("a shuffle mask that misses a lane", "0xffffffffu, sum", "0x7fffffffu, sum", PLAIN,
        "mask 7fffffff does not name the calling lane 31"),
    Bug("a barrier that some threads skip", "__syncthreads();  // summed", "if (threadIdx.x < 32) __syncthreads();",
        PLAIN, r"smooth\.cu:\d+: thread .* wait in __syncthreads|__syncthreads after 31 threads"),
    Bug("different collectives in a warp", "sum += __shfl_xor_sync(0xffffffffu, sum, distance)",
        "threadIdx.x % 2 ? sum += __shfl_xor_sync(0xffffffffu, sum, distance) : sum += __ballot_sync(0xffffffffu, 1)",
        PLAIN, "of the warp wait in __ballot_sync"),
    Bug("an address that is not aligned", "p.input + from, from", "p.input + from + 1, from", PLAIN,
        r"cp_async_16: address 0x[0-9a-f]+ is not a multiple of 16"),
)  # fmt: skip


@pytest.mark.parametrize(
    "options",
    [PLAIN, Options(eager_copies=True), AHEAD, RANDOM, BOUNDS, RACES, EAGER_RACES],
    ids=lambda one: f"{one.schedule}-{one.sanitizer}-{one.eager_copies}",
)
def test_the_kernel_without_a_bug_passes(options: Options) -> None:
    smooth(SMOOTH, options)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_bug_is_caught(bug: Bug) -> None:
    assert SMOOTH.count(bug.old) == 1, "the kernel has changed"
    with pytest.raises((AssertionError, EmulatorError), match=bug.said):
        smooth(SMOOTH.replace(bug.old, bug.new), bug.options)
