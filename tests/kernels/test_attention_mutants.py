"""Bugs planted in the attention kernels: each must be seen by the checks that the kernels pass.

A mutant is killed when one of a few runs (late and eager copies, fair and unfair schedules) gives a wrong result or
makes the emulator stop. Writes out of bounds are not among them: they would end the test run,
and `test_emulator_faults.py` has them under a sanitizer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import torch

from tests.kernels.attention_runs import case, check, decode, prefill
from tests.kernels.dense import Problem
from yaie_cuda import sources
from yaie_cuda.emulator.launcher import EmulatorLauncher, Options
from yaie_cuda.errors import EmulatorError

torch.set_num_threads(1)
pytestmark = pytest.mark.timeout(120)
DECODE, PREFILL = "paged_attention_decode", "paged_attention_prefill"
MODES = (
    Options(),
    Options(eager_copies=True),
    Options(schedule="warp_ahead", seed=1),
    Options(schedule="warp_ahead", seed=2, eager_copies=True),
)


@dataclass(frozen=True)
class Mutant:
    """`old` becomes `new` in the source of `kernel`; what must notice is one of MODES."""

    kernel: str
    old: str
    new: str
    features: dict = field(default_factory=dict)


MUTANTS = {
    "decode-no-wait": Mutant(DECODE, "cp_async_wait<STAGES - 2>();\n        __syncwarp();", "__syncwarp();"),
    "decode-waits-for-too-few": Mutant(DECODE, "<STAGES - 2>();\n        __syncw", "<STAGES - 1>();\n        __syncw"),
    "decode-stage-filled-too-early": Mutant(DECODE, "copy(k + STAGES - 1, next);", "copy(k + STAGES - 1, stage);"),
    "decode-no-barrier-before-joining": Mutant(DECODE, "__syncthreads();  // the states of all warps", ""),
    "decode-no-barrier-after-joining": Mutant(DECODE, "__syncthreads();  // they are read before", "//"),
    "decode-length-off-by-one": Mutant(DECODE, "high[h] = span.length", "high[h] = 1 + span.length"),
    "decode-window-off-by-one": Mutant(DECODE, "high[h] - p.window : 0", "high[h] - p.window - 1 : 0", {"window": 40}),
    "decode-unmasked-start": Mutant(DECODE, "key < sight.all_from || ", "", {"window": 40}),
    "decode-unmasked-end": Mutant(DECODE, " || key + kGranule > sight.all_to", ""),
    "decode-copies-past-the-end": Mutant(DECODE, "high = span.length - key;", "high = span.length - key + 1;"),
    "decode-sink-twice": Mutant(DECODE, "shared, row, -INFINITY, lane", "shared, row, 0.0f, lane", {"sinks": True}),
    "decode-part-of-another-head": Mutant(DECODE, "piece.first_item + piece.part)", "piece.first_item)"),
    "prefill-no-wait": Mutant(PREFILL, "cp_async_wait<0>();\n        __syncthreads();", "__syncthreads();"),
    "prefill-no-barrier": Mutant(PREFILL, "cp_async_wait<0>();\n        __syncthreads();", "cp_async_wait<0>();"),
    "prefill-causal-off-by-one": Mutant(PREFILL, "p.group + 1;\n    }", "p.group + 2;\n    }"),
    "prefill-diagonal-unmasked": Mutant(PREFILL, " || key + kScored > w.high_from", ""),
    "prefill-window-unmasked": Mutant(PREFILL, "key < w.low_to || ", "", {"window": 40}),
    "prefill-tile-too-few": Mutant(PREFILL, "ceil_div(w.high, KEYS) - begin", "w.high / KEYS - begin"),
}  # fmt: skip


def run(launcher: EmulatorLauncher, kernel: str, features: dict) -> None:
    """Problems with split and whole keys, both ends of windows, several pieces a block and sequences of odd lengths."""
    decodes = ((3, 600), *((3, 25 + 11 * i) for i in range(9)))
    lens = decodes if kernel == DECODE else ((40, 170), (9, 9), (30, 30))
    how: Callable = decode if kernel == DECODE else prefill
    problem = Problem(case(lens, heads=4, kv_heads=2, **features))
    check(problem, how(launcher, problem))


@pytest.mark.parametrize("kernel", [DECODE, PREFILL])
@pytest.mark.parametrize("features", [{}, {"window": 40}, {"sinks": True}], ids=["plain", "window", "sinks"])
def test_the_kernels_pass(kernel: str, features: dict) -> None:
    for options in MODES:
        run(EmulatorLauncher(options), kernel, features)


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_killed(name: str) -> None:
    mutant = MUTANTS[name]
    text = sources.text_of(mutant.kernel)
    assert text.count(mutant.old) == 1, "the planted bug does not fit the source any more"
    replaced = {mutant.kernel: text.replace(mutant.old, mutant.new)}
    for options in MODES:
        try:
            run(EmulatorLauncher(options, replaced), mutant.kernel, mutant.features)
        except (AssertionError, EmulatorError):
            return
    pytest.fail(f"{name} passes")
