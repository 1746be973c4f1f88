"""The draw and the penalties, emulated: against the reference, the engine's sampler and the true distribution."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

import yaie_cuda.ops  # noqa: F401 - defines torch.ops.yaie
from yaie_cuda import sampling
from yaie_cuda.emulator.launcher import EmulatorLauncher, Options
from yaie_cuda.reference.sampling import kept, uniform
from yaie_engine import distribution, philox
from yaie_engine.params import SamplingParams
from yaie_engine.penalties import Penalties, TokenCounts, penalise
from yaie_engine.sampler import Sampler

pytestmark = pytest.mark.timeout(900)
NEAR = 1e-5


@pytest.fixture(scope="module")
def launcher() -> EmulatorLauncher:
    return EmulatorLauncher(Options(os_threads=2))


@dataclass
class Rows:
    """The arguments of the op, one entry per row; a number stands for all rows."""

    logits: Tensor
    temperature: Tensor | float = 1.0
    top_k: Tensor | int = 0
    top_p: Tensor | float = 1.0
    min_p: Tensor | float = 0.0
    seed: Tensor | int = 7
    counter: Tensor | None = None

    def arguments(self) -> list[Tensor]:
        rows = len(self.logits)

        def column(value: Tensor | float, dtype: torch.dtype) -> Tensor:
            return value.to(dtype) if isinstance(value, Tensor) else torch.full((rows,), value, dtype=dtype)

        counter = torch.arange(rows) << 32 if self.counter is None else self.counter
        return [
            self.logits,
            column(self.temperature, torch.float32),
            column(self.top_k, torch.int32),
            column(self.top_p, torch.float32),
            column(self.min_p, torch.float32),
            column(self.seed, torch.int64),
            counter,
        ]

    def by_kernel(self, launcher: EmulatorLauncher) -> Tensor:
        out = torch.full((len(self.logits),), -9)
        arguments = self.arguments()
        launcher.watch(*arguments, out)
        sampling.top_k_top_p_sample_kernel(launcher, *arguments, out)
        return out

    def by_reference(self) -> Tensor:
        out = torch.full((len(self.logits),), -9)
        torch.ops.yaie.top_k_top_p_sample(*self.arguments(), out)
        return out

    def distance(self) -> Tensor:
        """How far each row's uniform is from the nearest boundary between two tokens: float64 [rows]."""
        logits, temperature, top_k, top_p, min_p, seed, counter = self.arguments()
        scores = logits.float()
        heat = temperature.clamp_min(1e-30)[:, None]
        weights = torch.exp(((scores - scores.amax(-1, keepdim=True)) / heat).double())
        upto = (weights * kept(scores, weights, top_k, top_p, min_p)).cumsum(-1)
        share = torch.nn.functional.pad(upto / upto[:, -1:], (1, 0))
        return (share - uniform(seed, counter)[:, None]).abs().amin(-1)


def mixed(rows: int, vocab: int, seed: int, dtype: torch.dtype = torch.float32) -> Rows:
    """Peaked and flat rows, with every filter on and off and with masked tokens and ties."""
    draw = torch.Generator().manual_seed(seed)

    def pick(values: Sequence[float]) -> Tensor:
        return torch.tensor(values)[torch.randint(len(values), (rows,), generator=draw)]

    logits = torch.randn(rows, vocab, generator=draw) * pick([0.1, 1.0, 2.0, 5.0])[:, None]
    logits[::3] = logits[::3].round(decimals=1)
    logits[1::5] = logits[1::5].masked_fill(torch.rand(len(logits[1::5]), vocab, generator=draw) < 0.3, -math.inf)
    logits[2::7, -1] = -1e4
    return Rows(
        logits.to(dtype),
        temperature=pick([0.2, 0.7, 1.0, 1.0, 1.5, 10.0]),
        top_k=pick([0, 0, -1, 1, 5, 40, vocab // 2, vocab + 3]),
        top_p=pick([1.0, 1.0, 0.0, 0.3, 0.9, 0.95, 0.999]),
        min_p=pick([0.0, 0.0, 0.05, 0.3, 1.0]),
        seed=torch.randint(-(2**62), 2**62, (rows,), generator=draw),
        counter=torch.randint(0, 2**40, (rows,), generator=draw),
    )


def assert_agrees(launcher: EmulatorLauncher, rows: Rows) -> float:
    """The share of rows with the reference's token, all of those away from a boundary among them."""
    got, wanted = rows.by_kernel(launcher), rows.by_reference()
    same = got == wanted
    clear = rows.distance() > NEAR
    assert bool(same[clear].all()), (same.logical_not() & clear).nonzero().flatten().tolist()
    return float(same.double().mean())


# ---- the reference is the engine's sampler


def test_the_stream_is_the_engines() -> None:
    seeds = [0, 1, -1, 2**63 - 1, -(2**63), 123456789]
    indices, positions = [0, 1, 127, 3, 0, 5], [0, 1, 2, 2**31 - 1, 77, 10**6]
    counter = torch.tensor([index | position << 32 for index, position in zip(indices, positions, strict=True)])
    wanted = philox.uniform(seeds, indices, positions).astype(np.float64)
    assert uniform(torch.tensor(seeds), counter).tolist() == wanted.tolist()


def test_the_reference_draws_what_the_engine_draws() -> None:
    rows = mixed(600, 333, seed=1)
    logits, temperature, top_k, top_p, min_p, seed, _ = rows.arguments()
    rows.counter = torch.arange(600) % 5 | torch.arange(600) << 32
    sampler, states = Sampler(333, 333, []), []
    for i in range(600):
        params = SamplingParams(
            temperature=temperature[i].item(),
            top_k=max(-1, top_k[i].item()),
            top_p=top_p[i].item(),
            min_p=min_p[i].item(),
        )
        row = sampler.new_row(params, seed=int(seed[i]), index=i % 5)
        row.num_output = i
        states.append(row)
    drawn = distribution.draw(logits, logits.amax(-1), states)
    same, clear = drawn == rows.by_reference(), rows.distance() > NEAR
    assert bool(same[clear].all()) and same.double().mean() > 0.999


# ---- the kernel is the reference


def test_ten_thousand_rows(launcher: EmulatorLauncher) -> None:
    assert assert_agrees(launcher, mixed(10_000, 257, seed=2)) >= 0.999


@pytest.mark.parametrize("vocab", [1, 2, 31, 130, 1023, 4001])
def test_vocabularies_of_a_small_block(launcher: EmulatorLauncher, vocab: int) -> None:
    assert_agrees(launcher, mixed(40, vocab, seed=vocab))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_large_vocabulary(launcher: EmulatorLauncher, dtype: torch.dtype) -> None:
    assert_agrees(launcher, mixed(30, 20_000, seed=3, dtype=dtype))


@pytest.mark.parametrize("columns", [slice(0, 300), slice(1, 300), slice(2, 302)])
def test_rows_that_lie_apart(launcher: EmulatorLauncher, columns: slice) -> None:
    """Padding columns are left out by a view, whatever alignment it has."""
    rows = mixed(20, 304, seed=4)
    logits, rows.logits = rows.logits, rows.logits[:, columns]
    logits[:, 302:] = math.nan
    assert_agrees(launcher, rows)


def test_more_tokens_are_kept_than_the_list_holds(launcher: EmulatorLauncher) -> None:
    draw = torch.Generator().manual_seed(5)
    logits = torch.randn(16, 5000, generator=draw) * 0.3
    logits[8:] = logits[8:].bfloat16().float()
    for top_k, top_p in ((0, 0.9), (3000, 1.0), (3000, 0.8)):
        assert_agrees(launcher, Rows(logits, top_k=top_k, top_p=top_p))


def test_a_row_depends_on_itself_only(launcher: EmulatorLauncher) -> None:
    rows = mixed(12, 700, seed=6)
    whole = rows.by_kernel(launcher)
    others = EmulatorLauncher(Options(schedule="seeded", seed=3))
    for i in range(12):
        logits, temperature, top_k, top_p, min_p, seed, counter = (each[i : i + 1] for each in rows.arguments())
        alone = Rows(logits, temperature, top_k, top_p, min_p, seed, counter)
        assert alone.by_kernel(others).tolist() == [whole[i]]


@pytest.mark.parametrize(("temperature", "top_k", "top_p", "min_p"), [(1.0, 0, 1.0, 0.0), (0.7, 12, 0.9, 0.02)])
def test_the_draws_follow_the_distribution(
    launcher: EmulatorLauncher, temperature: float, top_k: int, top_p: float, min_p: float
) -> None:
    """Chi-square over 6000 draws of one row, at the level 1 in 1000."""
    logits = torch.randn(16, generator=torch.Generator().manual_seed(7)).expand(6000, 16).contiguous()
    rows = Rows(logits, temperature, top_k, top_p, min_p)
    counts = torch.bincount(rows.by_kernel(launcher), minlength=16).double()
    weights = torch.exp((logits[:1] - logits.max()).double() / temperature)
    _, _, k, p, m, _, _ = rows.arguments()
    weights *= kept(logits[:1], weights, k[:1], p[:1], m[:1])
    wanted = 6000 * (weights / weights.sum())[0]
    assert bool((counts[wanted == 0] == 0).all())
    inside = wanted > 0
    freedom = int(inside.sum()) - 1
    statistic = float(((counts - wanted)[inside] ** 2 / wanted[inside]).sum())
    # Wilson and Hilferty's approximation of the quantile.
    assert statistic < freedom * (1 - 2 / (9 * freedom) + 3.0902 * math.sqrt(2 / (9 * freedom))) ** 3


# ---- single rules


def test_greedy_takes_the_best_token_with_the_lowest_id(launcher: EmulatorLauncher) -> None:
    logits = torch.tensor([[1.0, 3.0, 2.0, 3.0], [-0.0, 0.0, -1.0, 0.0], [-math.inf, -5.0, -math.inf, -5.0]])
    assert Rows(logits, temperature=0.0, top_k=3, top_p=0.1).by_kernel(launcher).tolist() == [1, 0, 1]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_rows_without_an_answer_give_minus_one(launcher: EmulatorLauncher, temperature: float) -> None:
    logits = torch.zeros(4, 8)
    logits[0, 3], logits[1, 5], logits[2] = math.nan, math.inf, -math.inf
    rows = Rows(logits, temperature=temperature, top_k=4, top_p=0.5)
    got = rows.by_kernel(launcher)
    assert got[:3].tolist() == [-1, -1, -1] and got[3] >= 0
    assert torch.equal(got, rows.by_reference())


def test_negative_nan_is_nan(launcher: EmulatorLauncher) -> None:
    logits = torch.tensor([0xFFC00000, 0, 0, 0], dtype=torch.uint32).view(torch.float32)[None]
    assert Rows(logits).by_kernel(launcher).tolist() == [-1]


def test_of_equal_tokens_those_with_low_ids_stay(launcher: EmulatorLauncher) -> None:
    many = 400
    top_k = Rows(torch.zeros(many, 64), top_k=5).by_kernel(launcher)
    assert set(top_k.tolist()) == {0, 1, 2, 3, 4}
    top_p = Rows(torch.zeros(many, 64), top_p=0.125).by_kernel(launcher)
    assert set(top_p.tolist()) == set(range(8))
    both = Rows(torch.zeros(many, 64), top_k=8, top_p=0.5).by_kernel(launcher)
    assert set(both.tolist()) == {0, 1, 2, 3}
    logits = torch.zeros(many, 64)
    logits[:, 40] = 2
    assert set(Rows(logits, top_k=3).by_kernel(launcher).tolist()) == {0, 1, 40}


@pytest.mark.parametrize("how", [{"top_k": 1}, {"top_p": 0.0}, {"min_p": 1.0}, {"temperature": 1e-20}])
def test_the_best_token_always_stays(launcher: EmulatorLauncher, how: dict[str, float]) -> None:
    logits = torch.randn(50, 100, generator=torch.Generator().manual_seed(8)) * 3
    assert torch.equal(Rows(logits, **how).by_kernel(launcher), logits.argmax(-1))  # type: ignore[arg-type]


def test_logits_at_the_ends_of_float32(launcher: EmulatorLauncher) -> None:
    logits = torch.zeros(4, 40)
    logits[0, :2] = torch.tensor([3.4e38, -3.4e38])
    logits[1] = -3.4e38
    logits[2] = torch.linspace(-1e-44, 1e-44, 40)
    logits[3, 1:] = -math.inf
    for top_k, top_p in ((0, 1.0), (3, 1.0), (0, 0.5), (3, 0.5)):
        rows = Rows(logits, top_k=top_k, top_p=top_p)
        assert torch.equal(rows.by_kernel(launcher), rows.by_reference())


# ---- penalties


def test_penalties_are_those_of_the_engine(launcher: EmulatorLauncher) -> None:
    draw = np.random.default_rng(9)
    rows, vocab = 5, 300
    logits = torch.randn(rows, vocab + 4, generator=torch.Generator().manual_seed(9))[:, :vocab]
    states = []
    for row in range(rows):
        counts = TokenCounts(draw.integers(0, vocab, 20 * row).tolist(), vocab)
        for token in draw.integers(0, vocab, 30 * row):
            counts.push(int(token))
        states.append((row, counts, Penalties(*(float(x) for x in (1 + row / 3, row / 5 - 0.4, 0.3 - row / 7)))))
    wanted = logits.clone()
    penalise(wanted, states)
    arguments = [
        torch.from_numpy(np.concatenate([counts.ids for _, counts, _ in states])),
        torch.from_numpy(np.concatenate([counts.counts for _, counts, _ in states])),
        torch.tensor(np.cumsum([0, *(len(counts.ids) for _, counts, _ in states)]), dtype=torch.int32),
        *torch.tensor([[p.repetition, p.presence, p.frequency] for _, _, p in states]).T.contiguous(),
    ]
    for run in (torch.ops.yaie.apply_penalties, lambda *rest: sampling.apply_penalties_kernel(launcher, *rest)):
        got = logits.clone()
        run(got, *arguments)
        torch.testing.assert_close(got, wanted, rtol=0, atol=0)


def test_penalties_without_tokens_and_with_unknown_ones(launcher: EmulatorLauncher) -> None:
    logits, ones = torch.ones(2, 4), torch.ones(2)
    starts = torch.tensor([0, 0, 3], dtype=torch.int32)
    ids, counts = torch.tensor([-1, 4, 2]), torch.tensor([1.0, 1.0, 2.0])
    for run in (torch.ops.yaie.apply_penalties, lambda *rest: sampling.apply_penalties_kernel(launcher, *rest)):
        got = logits.clone()
        run(got, ids, counts, starts, ones, ones, ones)
        assert got.tolist() == [[1, 1, 1, 1], [1, 1, -2, 1]]
        run(got, ids[:0], counts[:0], torch.zeros(3, dtype=torch.int32), ones, ones, ones)
        assert got.tolist() == [[1, 1, 1, 1], [1, 1, -2, 1]]


# ---- bad input, sanitizers


def _draw(at: int, value: Tensor) -> Callable[[EmulatorLauncher], None]:
    arguments = [*Rows(torch.zeros(2, 8)).arguments(), torch.zeros(2, dtype=torch.int64)]
    arguments[at] = value
    return lambda launcher: sampling.top_k_top_p_sample_kernel(launcher, *arguments)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (_draw(0, torch.zeros(8)), r"logits has shape \[8\], expected \[rows, vocab\]"),
        (_draw(0, torch.zeros(2, 8).double()), "logits is float64; kernels take bfloat16, float16, float32"),
        (_draw(0, torch.zeros(2, 16)[:, ::2]), "the last dimension of logits has stride 2"),
        (_draw(0, torch.zeros(2, 0)), "logits have no columns"),
        (_draw(0, torch.zeros(2, 2**19 + 1)), "a vocabulary of 524289 tokens; kernels take up to 524288"),
        (_draw(1, torch.zeros(3)), r"temperature has shape \[3\], expected \[2\]"),
        (_draw(2, torch.zeros(2, dtype=torch.int64)), "top_k is int64, expected int32"),
        (_draw(7, torch.zeros(4, dtype=torch.int64)[::2]), "out is not contiguous"),
    ],
)
def test_bad_input(launcher: EmulatorLauncher, call: Callable[[EmulatorLauncher], None], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(launcher)


def test_no_rows(launcher: EmulatorLauncher) -> None:
    assert Rows(torch.zeros(0, 8)).by_kernel(launcher).tolist() == []
    assert Rows(torch.zeros(0, 8)).by_reference().tolist() == []


@pytest.mark.parametrize("sanitizer", ["address", "thread"])
def test_under_a_sanitizer(sanitizer: str) -> None:
    checked = EmulatorLauncher(Options(sanitizer=sanitizer))  # type: ignore[arg-type]
    rows = mixed(12, 1501, seed=10)
    rows.logits = rows.logits[:, :1500]
    assert_agrees(checked, rows)
    logits, ones = torch.ones(2, 4), torch.ones(2)
    ids, starts = torch.tensor([0, 3, 2]), torch.tensor([0, 1, 3], dtype=torch.int32)
    checked.watch(logits, ones, ids, starts)
    counts = torch.ones(3)
    checked.watch(counts)
    sampling.apply_penalties_kernel(checked, logits, ids, counts, starts, ones, ones, ones)
    assert logits.tolist() == [[-1, 1, 1, 1], [1, 1, -1, -1]]


@pytest.mark.full
@pytest.mark.parametrize("vocab", [32_000, 128_256, 151_936, 262_144])
def test_vocabularies_of_real_models(launcher: EmulatorLauncher, vocab: int) -> None:
    assert_agrees(launcher, mixed(12, vocab, seed=vocab))
