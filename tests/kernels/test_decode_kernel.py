"""The emulated decode kernel against attention in float64, with NaN wherever nothing may be read."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

import yaie_cuda.ops  # noqa: F401 - defines torch.ops.yaie
from tests.kernels.attention_runs import FEATURES, SPECIALISATIONS, case, check, decode, prefill
from tests.kernels.dense import Problem
from yaie_cuda.attention import unsupported_reason
from yaie_cuda.compiler import compile_kernel, compiler_reason
from yaie_cuda.emulator.launcher import EmulatorLauncher, Options
from yaie_cuda.planning import HEAD_DIMS, decode_layout, plan_decode
from yaie_cuda.specialisations.attention import decode_specialisation

torch.set_num_threads(1)
pytestmark = pytest.mark.timeout(120)
RAGGED = ((1, 0), (1, 1), (1, 15), (1, 16), (1, 17), (1, 63), (1, 64), (1, 65), (1, 150))


@pytest.fixture(scope="module")
def emulated() -> EmulatorLauncher:
    return EmulatorLauncher()


@pytest.mark.parametrize("spec", SPECIALISATIONS)
def test_ragged_batch(emulated: EmulatorLauncher, spec: str) -> None:
    """Empty and one-token sequences, both sides of every block edge, grouped heads."""
    problem = Problem(case(RAGGED, spec, heads=8, kv_heads=2))
    check(problem, decode(emulated, problem))


@pytest.mark.parametrize("group", [1, 3, 4, 8, 16])
@pytest.mark.parametrize("feature", FEATURES)
def test_features_and_groups(emulated: EmulatorLauncher, feature: str, group: int) -> None:
    problem = Problem(case(((1, 1), (1, 90), (1, 0), (1, 33)), heads=group, **FEATURES[feature]))
    check(problem, decode(emulated, problem))


@pytest.mark.parametrize("feature", FEATURES)
@pytest.mark.parametrize("q_len", [2, 3, 5, 8])
def test_several_tokens_a_sequence(emulated: EmulatorLauncher, q_len: int, feature: str) -> None:
    """Speculative tokens: each sees one key more than the one before; some stand before the first position."""
    lens = ((q_len, q_len), (q_len, 1), (q_len, 0), (q_len, 75), (q_len, 130))
    problem = Problem(case(lens, heads=4, kv_heads=2, **FEATURES[feature]))
    check(problem, decode(emulated, problem))


@pytest.mark.parametrize(("q_len", "heads"), [(8, 4), (5, 8), (1, 40), (8, 16)])
def test_more_rows_than_one_tile(emulated: EmulatorLauncher, q_len: int, heads: int) -> None:
    """More than 16 query rows of a key head: the kernel for chunks serves, with its keys split."""
    problem = Problem(case(((q_len, 600), (q_len, 9), (q_len, 0)), heads=heads, sinks=True))
    check(problem, decode(emulated, problem))


@pytest.mark.parametrize("feature", FEATURES)
def test_split_keys(emulated: EmulatorLauncher, feature: str) -> None:
    """Few long sequences are split over all blocks; parts meet in the last block to finish, again and again."""
    problem = Problem(case(((1, 1700), (1, 3), (1, 830)), **{**FEATURES[feature], "window": 0}))
    first = decode(emulated, problem)
    check(problem, first)
    again = decode(emulated, problem)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True)), "the counters were not left at 0"


def test_more_pieces_than_blocks(emulated: EmulatorLauncher) -> None:
    """Blocks that stay take several pieces, whole sequences and parts of them, in turn."""
    lens = tuple((1, 30 + 41 * i) for i in range(40))
    problem = Problem(case(lens, heads=2))
    check(problem, decode(emulated, problem))


@pytest.mark.parametrize("eager", [False, True], ids=["late", "eager"])
@pytest.mark.parametrize("schedule", ["seeded", "warp_ahead"])
def test_copy_modes_and_schedules(schedule: str, eager: bool) -> None:
    launcher = EmulatorLauncher(Options(schedule=schedule, seed=3, eager_copies=eager))
    problem = Problem(case(((1, 900), (1, 17)), **FEATURES["all"]))
    check(problem, decode(launcher, problem))
    launcher = EmulatorLauncher(Options(schedule=schedule, seed=4, eager_copies=eager, os_threads=2))
    problem = Problem(case(((2, 70),), "bf16-d256-b16", heads=2))
    check(problem, decode(launcher, problem))


def test_blocks_behind_the_window_are_gone(emulated: EmulatorLauncher) -> None:
    """The engine gives blocks back that no window reaches; their table entries are then -1."""
    problem = Problem(case(((1, 400), (1, 120)), window=40))
    before = problem.tables.clone()
    for row, context in enumerate(problem.contexts):
        problem.tables[row, : (context - 40) // 16] = -1
    assert not torch.equal(before, problem.tables)
    check(problem, decode(emulated, problem))


@pytest.mark.parametrize("window", [1 << 30, 2**31 - 1, 2**31, 2**32 + 5, 2**63 - 1])
def test_windows_beyond_every_context(emulated: EmulatorLauncher, window: int) -> None:
    """What does not fit into the kernels' int32, as models write "no window", sees everything."""
    for run, rows in ((decode, 2), (prefill, 5)):
        problem = Problem(case(((rows, 300),), heads=2, window=window))
        check(problem, run(emulated, problem))


def test_strided_arguments(emulated: EmulatorLauncher) -> None:
    """Queries cut out of a fused projection, caches that lie block by block beside each other, a wider table."""
    problem = Problem(case(((2, 100), (2, 31)), heads=4, kv_heads=2))
    query = torch.stack(problem.queries)
    fused = torch.cat([query, torch.full_like(query, torch.nan)], 2)[:, :, :4]
    caches = torch.stack([problem.key_cache, problem.value_cache], 1)
    tables = torch.cat([problem.tables, torch.full_like(problem.tables, 1 << 30)], 1)[:, : problem.tables.shape[1]]
    got = decode(emulated, problem, query=fused, key_cache=caches[:, 0], value_cache=caches[:, 1], block_tables=tables)
    check(problem, got)


def test_float_sinks(emulated: EmulatorLauncher) -> None:
    problem = Problem(case(((1, 20),), sinks=True))
    assert problem.sinks is not None
    check(problem, decode(emulated, problem, sinks=problem.sinks.float()))


def test_context_longer_than_the_table(emulated: EmulatorLauncher) -> None:
    """A length past the table's end reads no table entry that is not there."""
    problem = Problem(case(((1, 128),)))
    problem.tables = problem.tables[:, :8].contiguous()
    long = torch.tensor([1000], dtype=torch.int32)
    assert torch.equal(decode(emulated, problem, context_lens=long)[0], decode(emulated, problem)[0])


def random_problem(number: int, specs: Sequence[str] = ("bf16-d64-b16", "f16-d96-b32")) -> Problem:
    draw = torch.Generator().manual_seed(number)

    def pick(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (1,), generator=draw))

    kv_heads, q_len = pick(1, 3), pick(1, 4)
    group = pick(1, 16 // q_len)
    lens = tuple((q_len, pick(0, 1) * pick(0, 1) * 700 + pick(0, 140)) for _ in range(pick(1, 7)))
    spec = specs[pick(0, len(specs) - 1)]
    more = {"window": pick(0, 1) * pick(1, 200), "softcap": pick(0, 1) * 2.5, "sinks": bool(pick(0, 1))}
    return Problem(case(lens, spec, kv_heads * group, kv_heads, **more), number)


@pytest.mark.parametrize("number", range(12))
def test_random_shapes(emulated: EmulatorLauncher, number: int) -> None:
    problem = random_problem(number)
    check(problem, decode(emulated, problem))


@pytest.mark.full
@pytest.mark.timeout(900)
def test_many_random_shapes(emulated: EmulatorLauncher) -> None:
    for number in range(100, 400):
        problem = random_problem(number, tuple(SPECIALISATIONS))
        check(problem, decode(emulated, problem))


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("sanitizer", ["address", "thread"])
@pytest.mark.parametrize("spec", ["bf16-d64-b16", "bf16-d256-b16"])
def test_sanitizers(spec: str, sanitizer: str) -> None:
    """No access out of bounds, no race in shared or global memory, the merge of parts included."""
    launcher = EmulatorLauncher(Options(sanitizer=sanitizer))
    problem = Problem(case(((1, 800), (1, 5)), spec, **FEATURES["sinks"]))
    query, out, lse = torch.stack(problem.queries), torch.empty(2, 1, 4, problem.case.key_dim), torch.empty(2, 1, 4)
    out = out.to(problem.case.dtype)
    launcher.watch(query, problem.key_cache, problem.value_cache, problem.tables, problem.context_lens, out, lse)
    launcher.watch(problem.sinks)
    from yaie_cuda.attention import paged_attention_decode_kernel as kernel

    caches = (problem.key_cache, problem.value_cache, problem.tables, problem.context_lens)
    kernel(launcher, query, *caches, problem.scale, 0, 0.0, problem.sinks, out, lse)
    check(problem, (out.flatten(0, 1), lse.flatten(0, 1)))


def test_plan_fills_the_device_and_bounds_the_parts() -> None:
    """The plan is made from shapes alone: a grid of resident blocks, and room for every part the kernel may make."""
    plan = plan_decode(128, 32, 8, 32768, 132, 232448)
    assert (plan.blocks, plan.layout.shared_bytes) == (264, 98304)
    assert plan.parts == 264 * 4 + 32 * 8
    assert plan_decode(128, 1, 8, 256, 132, 232448).blocks == 16
    assert plan_decode(128, 8, 8, 32768, 84, 101376).blocks == 84


@pytest.mark.skipif(bool(compiler_reason()), reason="NVRTC is not installed")
@pytest.mark.parametrize("arch", ["sm_90", "sm_100"])
@pytest.mark.parametrize("head_dim", HEAD_DIMS)
def test_planned_blocks_fit_into_the_registers(head_dim: int, arch: str) -> None:
    """Blocks stay, so a grid of more than run at once would leave half of the device idle in a second round."""
    specialisation = decode_specialisation("bfloat16", head_dim, 16)
    registers = -(-compile_kernel(specialisation, arch).report.registers // 8) * 8  # handed out in eights
    assert registers * specialisation.threads * decode_layout(head_dim).resident <= 65536


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"context_lens": torch.zeros(2, dtype=torch.int64)}, "context_lens is int64"),
        ({"context_lens": torch.zeros(3, dtype=torch.int32)}, "context_lens has shape"),
        ({"block_tables": torch.zeros(2, 4, dtype=torch.int64)}, "block_tables are"),
        ({"sinks": torch.zeros(3)}, "sinks has shape"),
        ({"key_cache": torch.zeros(4, 3, 16, 64, dtype=torch.bfloat16)}, "value_cache has shape"),
        ({"value_cache": torch.zeros(4, 1, 16, 64, dtype=torch.float16)}, "value_cache"),
    ],
)
def test_arguments_that_do_not_fit(emulated: EmulatorLauncher, changed: dict, message: str) -> None:
    problem = Problem(case(((1, 4), (1, 6))))
    with pytest.raises(ValueError, match=message):
        decode(emulated, problem, **changed)


def test_what_no_kernel_takes() -> None:
    assert unsupported_reason(torch.bfloat16, 128, 128, 48) == ""
    assert "float32" in unsupported_reason(torch.float32, 128, 128, 16)
    assert "head_dim 72" in unsupported_reason(torch.float16, 72, 72, 16)
    assert "one size" in unsupported_reason(torch.float16, 192, 128, 16)
    assert "block_size 8" in unsupported_reason(torch.float16, 64, 64, 8)
