"""Norm, gate and rotary embedding, emulated: against float64, the reference and transformers."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
import torch
from torch import Tensor
from transformers.models.llama.configuration_llama import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaMLP, LlamaRMSNorm, apply_rotary_pos_emb

import yaie_cuda.ops  # noqa: F401 - defines torch.ops.yaie
from yaie_cuda import fused, reference
from yaie_cuda.emulator.launcher import EmulatorLauncher, Options
from yaie_cuda.specialisations.fused import rms_norm_specialisation

pytestmark = pytest.mark.timeout(600)
DTYPES = (torch.bfloat16, torch.float16, torch.float32)
EPS = {torch.bfloat16: 2**-8, torch.float16: 2**-11, torch.float32: 2**-22}
"""Half a step of each dtype, relative; in float32 what sums in another order may differ by."""


@pytest.fixture(scope="module")
def launcher() -> EmulatorLauncher:
    return EmulatorLauncher()


def drawn(*shape: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def assert_close(got: Tensor, wanted: Tensor, roundings: int) -> None:
    """Element by element within so many roundings of the result's dtype, of float64 `wanted`."""
    step = EPS[got.dtype]
    torch.testing.assert_close(got.double(), wanted, rtol=roundings * step, atol=roundings * step * 1e-3)


def norm_in_float64(states: Tensor, weight: Tensor, eps: float) -> Tensor:
    wide = states.double()
    return wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps) * weight.double()


# ---- root mean square norm

ROWS = [(1, 8), (5, 128), (3, 100), (2, 1001), (2, 2048), (1, 4104)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "hidden"), ROWS)
@pytest.mark.parametrize("with_residual", [False, True])
def test_rms_norm(launcher: EmulatorLauncher, dtype: torch.dtype, rows: int, hidden: int, with_residual: bool) -> None:
    states, weight = drawn(rows, hidden, dtype=dtype), drawn(hidden, dtype=dtype, seed=1)
    residual = drawn(rows, hidden, dtype=dtype, seed=2) if with_residual else None
    wanted_residual = None if residual is None else residual + states
    out = torch.empty_like(states)
    fused.rms_norm_kernel(launcher, states, weight, 1e-6, residual, out)
    normed = states if wanted_residual is None else wanted_residual
    if residual is not None:
        torch.testing.assert_close(residual, wanted_residual, rtol=0, atol=0)
    assert_close(out, norm_in_float64(normed, weight, 1e-6), 2)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rms_norm_rounds_as_transformers_does(launcher: EmulatorLauncher, dtype: torch.dtype) -> None:
    layer = LlamaRMSNorm(256, eps=1e-5).to(dtype)
    layer.weight.data = drawn(256, dtype=dtype, seed=3)
    states = drawn(2, 20, 256, dtype=dtype) * 3
    with torch.no_grad():
        wanted = layer(states)
    out, by_kernel = torch.empty_like(states), torch.empty_like(states)
    torch.ops.yaie.rms_norm(states, layer.weight.data, 1e-5, None, out)
    assert torch.equal(out, wanted)
    fused.rms_norm_kernel(launcher, states, layer.weight.data, 1e-5, None, by_kernel)
    # Only the order of the sum of squares differs, which now and then tips a rounding.
    assert_close(by_kernel, wanted.double(), 2)
    if dtype != torch.float32:
        assert (by_kernel == wanted).float().mean() > 0.995


def test_rms_norm_in_place_and_over_strides(launcher: EmulatorLauncher) -> None:
    """`out` may be the input; rows may lie apart; heads of a token are rows too."""
    wide = drawn(6, 3, 80, dtype=torch.float32)
    states, weight = wide[:, :, 8:72], drawn(64, dtype=torch.float32, seed=4)
    wanted, before = norm_in_float64(states, weight, 1e-6), wide.clone()
    fused.rms_norm_kernel(launcher, states, weight, 1e-6, None, states)
    assert_close(states, wanted, 2)
    assert torch.equal(wide[:, :, :8], before[:, :, :8]) and torch.equal(wide[:, :, 72:], before[:, :, 72:])


def test_rows_take_a_warp_or_a_block_and_fit_into_registers() -> None:
    found = {h: rms_norm_specialisation("bfloat16", 8, h) for h in (64, 128, 512, 1024, 4096, 8192, 16384, 16392)}
    threads = {h: one and (dict(one.defines)["ROW_THREADS"], dict(one.defines)["STEPS"]) for h, one in found.items()}
    assert threads == {
        64: ("32", "1"),
        128: ("32", "1"),
        512: ("32", "2"),
        1024: ("128", "1"),
        4096: ("256", "2"),
        8192: ("512", "2"),
        16384: ("1024", "2"),
        16392: None,
    }


# ---- gate


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "width"), [(1, 8), (3, 100), (2, 7), (2, 2056)])
def test_silu_and_mul(launcher: EmulatorLauncher, dtype: torch.dtype, rows: int, width: int) -> None:
    states = drawn(rows, 2 * width, dtype=dtype) * 4
    out = states.new_empty(rows, width)
    fused.silu_and_mul_kernel(launcher, states, out)
    gate, up = states.double().chunk(2, -1)
    assert_close(out, gate * torch.sigmoid(gate) * up, 2)


def test_silu_of_large_numbers_stays_finite(launcher: EmulatorLauncher) -> None:
    states = torch.tensor([[-1e4, -100.0, 100.0, 1e4, 1.0, 1.0, 1.0, 1.0]])
    out = torch.empty(1, 4)
    fused.silu_and_mul_kernel(launcher, states, out)
    assert out.tolist() == [[0.0, 0.0, 100.0, 1e4]]


@pytest.mark.parametrize("dtype", DTYPES)
def test_silu_and_mul_is_the_gate_of_transformers(launcher: EmulatorLauncher, dtype: torch.dtype) -> None:
    config = LlamaConfig(hidden_size=16, intermediate_size=64, num_attention_heads=2)
    mlp = LlamaMLP(config).to(dtype)
    states = drawn(5, 16, dtype=dtype)
    with torch.no_grad():
        gate, up = mlp.gate_proj(states), mlp.up_proj(states)
        wanted = mlp.act_fn(gate) * up
    rows, out, by_kernel = torch.cat((gate, up), -1), torch.empty_like(wanted), torch.empty_like(wanted)
    torch.ops.yaie.silu_and_mul(rows, out)
    assert torch.equal(out, wanted)
    fused.silu_and_mul_kernel(launcher, rows, by_kernel)
    assert_close(by_kernel, wanted.double(), 2)


# ---- rotary embedding


@pytest.mark.parametrize(("scalar", "table"), [*zip(DTYPES, DTYPES, strict=True), (torch.bfloat16, torch.float32)])
@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim", "rotary_dim"), [(4, 2, 64, 64), (3, 1, 80, 20), (1, 1, 6, 6), (8, 8, 16, 8)]
)
def test_rotary_embedding(
    launcher: EmulatorLauncher,
    scalar: torch.dtype,
    table: torch.dtype,
    heads: int,
    kv_heads: int,
    head_dim: int,
    rotary_dim: int,
) -> None:
    query = drawn(heads, 7, head_dim, dtype=scalar).transpose(0, 1)
    key = drawn(7, kv_heads, head_dim, dtype=scalar, seed=1)
    angles = drawn(50, rotary_dim, dtype=torch.float32, seed=2)
    cos, sin = angles.cos().to(table), angles.sin().to(table)
    positions = torch.tensor([0, 49, 3, 3, 17, 1, 2])
    wanted_query, wanted_key = query.clone(), key.clone()
    reference.rotary_embedding(wanted_query, wanted_key, cos, sin, positions)
    fused.rotary_embedding_kernel(launcher, query, key, cos, sin, positions)
    torch.testing.assert_close(query, wanted_query, rtol=0, atol=0)
    torch.testing.assert_close(key, wanted_key, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rotary_embedding_is_that_of_transformers(dtype: torch.dtype) -> None:
    query, key = drawn(1, 4, 9, 32, dtype=dtype), drawn(1, 2, 9, 32, dtype=dtype, seed=1)
    half = drawn(9, 16, dtype=torch.float32, seed=2)
    angles = torch.cat((half, half), -1)
    cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
    wanted_query, wanted_key = apply_rotary_pos_emb(query, key, cos[None], sin[None])
    torch.ops.yaie.rotary_embedding(query[0].transpose(0, 1), key[0].transpose(0, 1), cos, sin, torch.arange(9))
    assert torch.equal(query, wanted_query) and torch.equal(key, wanted_key)


def test_rotating_keeps_lengths_and_differences_of_angles(launcher: EmulatorLauncher) -> None:
    """Scores depend on the distance of two positions only."""
    query, key = (drawn(1, 1, 16, dtype=torch.float32, seed=seed).expand(10, 1, 16).contiguous() for seed in (5, 6))
    angle = torch.arange(10)[:, None] * torch.tensor([1.0, 0.5, 0.25, 0.1, 0.05, 0.02, 0.01, 0.001])
    cos, sin = torch.cat((angle, angle), 1).cos(), torch.cat((angle, angle), 1).sin()
    fused.rotary_embedding_kernel(launcher, query, key, cos, sin, torch.arange(10))
    scores = query[:, 0] @ key[:, 0].T
    torch.testing.assert_close(scores.diagonal(2), scores.diagonal(2)[:1].expand(8), rtol=1e-4, atol=1e-4)


# ---- all of them


def test_nothing_to_do(launcher: EmulatorLauncher) -> None:
    none, weight = torch.empty(0, 8), torch.ones(8)
    fused.rms_norm_kernel(launcher, none, weight, 1e-6, none, none)
    fused.silu_and_mul_kernel(launcher, none, torch.empty(0, 4))
    heads = torch.empty(0, 2, 8)
    fused.rotary_embedding_kernel(launcher, heads, heads, none, none, torch.empty(0, dtype=torch.int64))


STATES, WEIGHT, HEADS, LONG = torch.zeros(2, 8), torch.ones(8), torch.zeros(2, 2, 8), torch.zeros(1, 16385)
POSITIONS = torch.zeros(2, dtype=torch.int64)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda on: fused.rms_norm_kernel(on, STATES, WEIGHT, 1e-6, None, HEADS), "out has shape"),
        (lambda on: fused.rms_norm_kernel(on, STATES, WEIGHT[:4], 1e-6, None, STATES), r"expected \[8\]"),
        (lambda on: fused.rms_norm_kernel(on, STATES.double(), WEIGHT, 1e-6, None, STATES), "input is float64"),
        (lambda on: fused.rms_norm_kernel(on, STATES, WEIGHT.half(), 1e-6, None, STATES), "weight is float16"),
        (lambda on: fused.rms_norm_kernel(on, STATES, WEIGHT, 1e-6, STATES.half(), STATES), "residual is float16"),
        (lambda on: fused.rms_norm_kernel(on, HEADS.mT, WEIGHT[:2], 1e-6, None, HEADS.mT), "lie at no one distance"),
        (
            lambda on: fused.rms_norm_kernel(on, LONG, LONG[0], 1e-6, None, LONG),
            "rows of 16385, read 1 at a time",
        ),
        (lambda on: fused.silu_and_mul_kernel(on, STATES, STATES), r"expected \[2, 16\]"),
        (lambda on: fused.silu_and_mul_kernel(on, STATES.half(), STATES[:, :4]), "out is float32 and input is float16"),
        (lambda on: fused.rotary_embedding_kernel(on, HEADS, HEADS, STATES, STATES, POSITIONS.int()), "int32"),
        (
            lambda on: fused.rotary_embedding_kernel(on, HEADS, HEADS, STATES[:, :3], STATES[:, :3], POSITIONS),
            "rotary_dim 3 is odd",
        ),
        (lambda on: fused.rotary_embedding_kernel(on, HEADS, HEADS, STATES, STATES[:1], POSITIONS), "differ in shape"),
        (
            lambda on: fused.rotary_embedding_kernel(on, HEADS, HEADS, STATES.half(), STATES.half(), POSITIONS),
            "cos is float16 and query is float32",
        ),
    ],
)
def test_bad_input(launcher: EmulatorLauncher, call: Callable[[EmulatorLauncher], None], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(launcher)


@pytest.mark.parametrize("sanitizer", ["address", "thread"])
def test_under_a_sanitizer(sanitizer: str) -> None:
    checked = EmulatorLauncher(Options(sanitizer=sanitizer))  # type: ignore[arg-type]
    states, weight = drawn(3, 1002, dtype=torch.bfloat16), drawn(1002, dtype=torch.bfloat16, seed=1)
    residual, out = torch.zeros_like(states), torch.empty_like(states)
    gated, heads, angles = states.new_empty(3, 501), drawn(3, 4, 12, dtype=torch.float32), torch.randn(9, 10)
    positions = torch.tensor([0, 8, 4])
    checked.watch(states, weight, residual, out, gated, heads, angles, positions)
    fused.rms_norm_kernel(checked, states, weight, 1e-6, residual, out)
    assert_close(out, norm_in_float64(states, weight, 1e-6), 2)
    fused.silu_and_mul_kernel(checked, states, gated)
    fused.rotary_embedding_kernel(checked, heads[:, :3], heads[:, 3:], angles, angles, positions)


@pytest.mark.full
@pytest.mark.parametrize(
    ("dtype", "hidden"), list(product(DTYPES, (1, 3, 64, 96, 576, 1000, 1536, 3072, 4096, 5120, 8192)))
)
def test_every_length_of_row(launcher: EmulatorLauncher, dtype: torch.dtype, hidden: int) -> None:
    test_rms_norm(launcher, dtype, 2, hidden, True)
    test_silu_and_mul(launcher, dtype, 2, hidden)
