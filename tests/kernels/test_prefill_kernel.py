"""The emulated kernel for chunks against attention in float64, with NaN wherever nothing may be read."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

import yaie_cuda.ops  # noqa: F401 - defines torch.ops.yaie
from tests.kernels.attention_runs import FEATURES, SPECIALISATIONS, case, check, prefill
from tests.kernels.dense import Problem
from yaie_cuda.emulator.launcher import EmulatorLauncher, Options
from yaie_cuda.planning import plan_tiles

torch.set_num_threads(1)
pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def emulated() -> EmulatorLauncher:
    return EmulatorLauncher()


@pytest.mark.parametrize("spec", SPECIALISATIONS)
def test_ragged_chunks(emulated: EmulatorLauncher, spec: str) -> None:
    """Whole prompts, chunks in the middle of a context, one-token and long ones, rows over several tiles."""
    problem = Problem(case(((40, 40), (1, 90), (17, 70), (1, 1), (66, 131)), spec, heads=4, kv_heads=2))
    check(problem, prefill(emulated, problem))


@pytest.mark.parametrize("group", [1, 3, 8])
@pytest.mark.parametrize("feature", FEATURES)
def test_features_and_groups(emulated: EmulatorLauncher, feature: str, group: int) -> None:
    """Windows and diagonals cut through tiles of rows and of keys."""
    problem = Problem(case(((50, 110), (5, 5), (33, 64)), heads=group, **FEATURES[feature]))
    check(problem, prefill(emulated, problem))


@pytest.mark.parametrize("rows", [1, 15, 16, 17, 63, 64, 65, 128, 129])
def test_edges_of_tiles(emulated: EmulatorLauncher, rows: int) -> None:
    problem = Problem(case(((rows, rows), (rows, rows + 63), (rows, rows + 64)), heads=1))
    check(problem, prefill(emulated, problem))


def test_chunks_that_see_nothing(emulated: EmulatorLauncher) -> None:
    """Rows before the first position, of an empty context too, give 0 and an lse of -inf; so may a chunk be empty."""
    problem = Problem(case(((3, 0), (0, 5), (5, 2), (4, 40), (0, 0)), heads=2))
    check(problem, prefill(emulated, problem))


@pytest.mark.parametrize("feature", FEATURES)
def test_split_keys(emulated: EmulatorLauncher, feature: str) -> None:
    """One short chunk over a long context leaves blocks idle: its keys are split, and merged by the last block."""
    problem = Problem(case(((6, 1100),), heads=4, **{**FEATURES[feature], "window": 0}))
    assert plan_tiles(64, 1, 24, 24, 1, problem.tables.shape[1] * 16, 4, 232448).splits > 2
    first = prefill(emulated, problem)
    check(problem, first)
    assert all(torch.equal(a, b) for a, b in zip(first, prefill(emulated, problem), strict=True))


@pytest.mark.parametrize("eager", [False, True], ids=["late", "eager"])
@pytest.mark.parametrize("schedule", ["seeded", "warp_ahead"])
def test_copy_modes_and_schedules(schedule: str, eager: bool) -> None:
    launcher = EmulatorLauncher(Options(schedule=schedule, seed=5, eager_copies=eager))
    problem = Problem(case(((70, 200), (6, 6)), heads=2, **FEATURES["all"]))
    check(problem, prefill(launcher, problem))


def test_blocks_behind_the_window_are_gone(emulated: EmulatorLauncher) -> None:
    """The engine gives blocks back that no row's window reaches; their table entries are then -1."""
    problem = Problem(case(((20, 400), (70, 300)), heads=1, window=40))
    for row, (rows, context) in enumerate(problem.case.lens):
        problem.tables[row, : (context - rows + 1 - 40) // 16] = -1
    check(problem, prefill(emulated, problem))


def test_strided_query(emulated: EmulatorLauncher) -> None:
    """Queries cut out of a fused projection."""
    problem = Problem(case(((40, 60), (5, 31)), heads=4, kv_heads=2))
    query = torch.cat(problem.queries)
    fused = torch.cat([query, torch.full_like(query, torch.nan)], 1)[:, :4]
    check(problem, prefill(emulated, problem, query=fused))


def random_problem(number: int, specs: Sequence[str] = ("bf16-d64-b16", "f16-d96-b32")) -> Problem:
    draw = torch.Generator().manual_seed(number)

    def pick(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (1,), generator=draw))

    kv_heads, group = pick(1, 2), pick(1, 6)
    lens = tuple((rows := pick(1, 90) if pick(0, 1) else pick(1, 6), rows + pick(0, 150)) for _ in range(pick(1, 4)))
    spec = specs[pick(0, len(specs) - 1)]
    more = {"window": pick(0, 1) * pick(1, 200), "softcap": pick(0, 1) * 2.5, "sinks": bool(pick(0, 1))}
    return Problem(case(lens, spec, kv_heads * group, kv_heads, **more), number)


@pytest.mark.parametrize("number", range(8))
def test_random_shapes(emulated: EmulatorLauncher, number: int) -> None:
    problem = random_problem(number)
    check(problem, prefill(emulated, problem))


@pytest.mark.full
@pytest.mark.timeout(900)
def test_many_random_shapes(emulated: EmulatorLauncher) -> None:
    for number in range(100, 250):
        problem = random_problem(number, tuple(SPECIALISATIONS))
        check(problem, prefill(emulated, problem))


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("sanitizer", ["address", "thread"])
def test_sanitizers(sanitizer: str) -> None:
    """No access out of bounds, no race in shared or global memory, the merge of parts included."""
    from yaie_cuda.attention import paged_attention_prefill_kernel as kernel

    launcher = EmulatorLauncher(Options(sanitizer=sanitizer))
    problem = Problem(case(((3, 600), (20, 20)), heads=2))
    query, out, lse = torch.cat(problem.queries), torch.empty(23, 2, 64, dtype=torch.bfloat16), torch.empty(23, 2)
    caches = (problem.key_cache, problem.value_cache, problem.tables)
    launcher.watch(query, *caches, problem.starts, problem.context_lens, out, lse)
    kernel(launcher, query, *caches, problem.starts, problem.context_lens, 20, problem.scale, 0, 0.0, None, out, lse)
    check(problem, (out, lse))


def test_plan_splits_only_what_leaves_the_device_idle() -> None:
    """An 8k prompt has tiles enough; 64 sequences of 4 heads over one prefix have 2 tiles a head, so keys are split."""
    prompt = plan_tiles(128, 1, 8192 * 4, 8192 * 4, 8, 8192, 132, 232448)
    assert (prompt.row_tiles, prompt.splits, prompt.layout.rows) == (256, 1, 128)
    prefix = plan_tiles(128, 1, 64 * 4, 64 * 4, 8, 4096, 132, 232448)
    assert (prefix.row_tiles, prefix.splits) == (2, 16)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"cu_seqlens_q": torch.zeros(3, dtype=torch.int64)}, "cu_seqlens_q is int64"),
        ({"cu_seqlens_q": torch.zeros(5, dtype=torch.int32)}, "block_tables has shape"),
        ({"query": torch.zeros(9, 3, 64, dtype=torch.bfloat16)}, "do not share"),
    ],
)
def test_arguments_that_do_not_fit(emulated: EmulatorLauncher, changed: dict, message: str) -> None:
    problem = Problem(case(((4, 4), (5, 6)), heads=2, kv_heads=2))
    with pytest.raises(ValueError, match=message):
        prefill(emulated, problem, **changed)
