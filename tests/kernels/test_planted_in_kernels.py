"""The real attention and cache kernels in every way of running, and mistakes in them that need one of these ways."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch

import yaie_cuda.ops  # noqa: F401 - defines torch.ops.yaie
from tests.kernels.attention_runs import case, check, decode, prefill
from tests.kernels.dense import Problem
from yaie_cuda import cache, sources
from yaie_cuda.emulator.launcher import EmulatorLauncher, Options
from yaie_cuda.errors import EmulatorError

pytestmark = pytest.mark.timeout(300)
PLAIN = Options()
AHEAD = Options(schedule="warp_ahead", eager_copies=True)
RACES = Options(sanitizer="thread")
BOUNDS = Options(sanitizer="address")
RANDOM = Options(schedule="seeded", seed=3)


LENS = tuple((2, context) for context in (0, 1, 64, 65, 300, 17, 33, 90, 128, 15))


def run_decode(launcher: EmulatorLauncher) -> None:
    """Ragged sequences with every block edge, grouped heads, a window, and one long enough to be split."""
    problem = Problem(case(LENS, heads=8, kv_heads=2, window=150, sinks=True))
    check(problem, decode(launcher, problem))


def run_prefill(launcher: EmulatorLauncher) -> None:
    """Chunks over contexts of other lengths, more than one tile of rows and of keys."""
    problem = Problem(case(((70, 200), (1, 1), (33, 33), (5, 129)), heads=2, kv_heads=1, window=90))
    check(problem, prefill(launcher, problem))


def run_copy(launcher: EmulatorLauncher) -> None:
    """Blocks that do not fill the threads of a part."""
    draw = torch.Generator().manual_seed(0)
    caches = [torch.randn(4, 2, 16, 24, generator=draw) for _ in range(4)]
    before = [one.clone() for one in caches]
    mapping = torch.tensor([[3, 0], [1, 2]])
    launcher.watch(mapping, *caches, *cache.cache_table(caches))
    cache.copy_blocks_kernel(launcher, caches[:2], caches[2:], mapping)
    for now, old in zip(caches, before, strict=True):
        old[0], old[2] = old[3], old[1]
        torch.testing.assert_close(now, old, rtol=0, atol=0)


RUNS: dict[str, Callable[[EmulatorLauncher], None]] = {
    "paged_attention_decode": run_decode,
    "paged_attention_prefill": run_prefill,
    "copy_blocks": run_copy,
}


@dataclass(frozen=True)
class Bug:
    """A mistake in a kernel: what is replaced by what, and the way of running that shows it."""

    kernel: str
    name: str
    old: str
    new: str
    options: Options = PLAIN


DECODE, PREFILL, COPY = RUNS
PAIR = "p.block_mapping[2 * pair{}], destination = p.block_mapping[2 * pair{}]"
BUGS = (
    Bug(DECODE, "no meeting of the lanes that copied", "<STAGES - 2>();\n        __syncwarp();", "<STAGES - 2>();"),
    Bug(DECODE, "no barrier before warps are joined", "__syncthreads();  // the states of all warps", "", RACES),
    Bug(DECODE, "no barrier before the next piece", "__syncthreads();  // they are read before", "//", RACES),
    Bug(PREFILL, "no barrier in the loop", "__syncthreads();  // tile k is there", "//", AHEAD),
    Bug(PREFILL, "no barrier in the loop, as a race", "__syncthreads();  // tile k is there", "//", RACES),
    Bug(PREFILL, "no barrier after the plan", "__syncthreads();\n    if (w.part", "if (w.part", RANDOM),
    Bug(PREFILL, "no barrier after the plan, as a race", "__syncthreads();\n    if (w.part", "if (w.part", RACES),
    Bug(PREFILL, "rows of the last tile not cut", "if (row < w.rows)\n            store", "store", BOUNDS),
    Bug(COPY, "the bound off by one", "if (at < bytes) *reinterpret", "if (at <= bytes) *reinterpret", BOUNDS),
    Bug(COPY, "source and destination exchanged", PAIR.format("", " + 1"), PAIR.format(" + 1", "")),
)  # fmt: skip


@pytest.mark.parametrize(
    "options", [PLAIN, AHEAD, RANDOM, BOUNDS, RACES], ids=lambda one: one.sanitizer or one.schedule
)
@pytest.mark.parametrize("kernel", RUNS)
def test_the_kernel_as_it_is_passes(kernel: str, options: Options) -> None:
    RUNS[kernel](EmulatorLauncher(options))


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: f"{bug.kernel}: {bug.name}")
def test_a_bug_is_caught(bug: Bug) -> None:
    text = sources.built_in(bug.kernel)
    assert text.count(bug.old) == 1, "the kernel has changed: plant the mistake anew"
    with pytest.raises((AssertionError, EmulatorError), match=r"^(?!.*watch\(\))"):
        RUNS[bug.kernel](EmulatorLauncher(bug.options, {bug.kernel: text.replace(bug.old, bug.new)}))
