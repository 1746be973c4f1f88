"""The small ops between a model's matrix products: norm, gate and rotary embedding, one launch each."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from . import reference
from .checks import (
    SCALARS,
    UnservedError,
    access_width,
    check_index,
    check_shape,
    no_rows,
    refuse,
    row_stride,
    scattered,
    unknown_scalar,
    unlike,
)
from .kernel import Launcher, Specialisation
from .library import define
from .prepared import Launch, prepared
from .specialisations.fused import (
    ROTARY_THREADS,
    SILU_THREADS,
    rms_norm_specialisation,
    rotary_specialisation,
    rows_per_block,
    silu_specialisation,
)

# ---- root mean square norm


class NormPlan(NamedTuple):
    """How rms_norm runs on given tensors: strides in scalars from row to row."""

    specialisation: Specialisation
    input_stride: int
    residual_stride: int
    out_stride: int


def _norm_plan(input: Tensor, weight: Tensor, residual: Tensor | None, out: Tensor) -> NormPlan | str:
    """The plan, or why there is none."""
    reason = unknown_scalar("input", input) or unlike("weight", weight, input.dtype, "input")
    rows, strides = [input, out] if residual is None else [input, out, residual], []
    for name, tensor in zip(("input", "out", "residual"), rows, strict=False):
        stride = row_stride(tensor)
        reason = reason or unlike(name, tensor, input.dtype, "input")
        reason = reason or (no_rows(name, tensor) if stride is None else "")
        strides.append(stride or 0)
    if reason:
        return reason
    hidden = input.shape[-1]
    width = access_width(16 // input.element_size(), (hidden, *strides), (weight, *rows))
    specialisation = rms_norm_specialisation(SCALARS[input.dtype], width, hidden)
    if specialisation is None:
        return f"rows of {hidden}, read {width} at a time, do not fit into the registers of a block"
    return NormPlan(specialisation, strides[0], strides[-1], strides[1])


@prepared
def rms_norm_kernel(
    launcher: Launcher, input: Tensor, weight: Tensor, eps: float, residual: Tensor | None, out: Tensor
) -> tuple[Launch, ...]:
    """As `reference.rms_norm`, in one launch; `out` may be `input`. Raises ValueError for what no kernel takes."""
    hidden = input.shape[-1]
    check_shape("out", out, input.shape)
    check_index("weight", weight, weight.dtype, (hidden,))
    if residual is not None:
        check_shape("residual", residual, input.shape)
    plan = _norm_plan(input, weight, residual, out)
    if isinstance(plan, str):
        raise UnservedError(plan)
    if not input.numel():
        return ()
    rows = input.numel() // hidden
    numbers = {
        "input_stride": plan.input_stride,
        "residual_stride": plan.residual_stride,
        "out_stride": plan.out_stride,
        "rows": rows,
        "hidden": hidden,
        "eps": eps,
    }
    return (Launch(plan.specialisation, (-(-rows // rows_per_block(plan.specialisation)), 1, 1), numbers),)


# ---- gate


@prepared
def silu_and_mul_kernel(launcher: Launcher, input: Tensor, out: Tensor) -> tuple[Launch, ...]:
    """As `reference.silu_and_mul`, in one launch. Raises ValueError for what no kernel takes."""
    check_shape("input", input, (*out.shape[:-1], 2 * out.shape[-1]))
    refuse(
        unknown_scalar("input", input)
        or unlike("out", out, input.dtype, "input")
        or no_rows("input", input)
        or no_rows("out", out)
    )
    if not out.numel():
        return ()
    width, strides = out.shape[-1], (row_stride(input) or 0, row_stride(out) or 0)
    chunk = access_width(16 // out.element_size(), (width, *strides), (input, out))
    numbers = {"input_stride": strides[0], "out_stride": strides[1], "width": width}
    grid = (out.numel() // width, -(-width // (SILU_THREADS * chunk)), 1)
    return (Launch(silu_specialisation(SCALARS[out.dtype], chunk), grid, numbers),)


# ---- rotary embedding


def rotary_problem(query: Tensor, key: Tensor, cos: Tensor, sin: Tensor) -> str:
    """Why no kernel rotates query and key [num_tokens, heads, head_dim] by cos and sin [rows, rotary_dim]; or ""."""
    reason = unknown_scalar("query", query) or unlike("key", key, query.dtype, "query")
    for name, tensor in (("query", query), ("key", key), ("cos", cos), ("sin", sin)):
        reason = reason or scattered(name, tensor)
    if not reason and cos.dtype not in (query.dtype, torch.float32):
        reason = unlike("cos", cos, query.dtype, "query")
    reason = reason or unlike("sin", sin, cos.dtype, "cos")
    if not reason and (cos.shape != sin.shape or cos.stride() != sin.stride()):
        reason = f"cos {list(cos.shape)} and sin {list(sin.shape)} differ in shape or strides"
    if not reason and (cos.shape[-1] % 2 or cos.shape[-1] > min(query.shape[-1], key.shape[-1])):
        reason = f"rotary_dim {cos.shape[-1]} is odd or more than head_dim {min(query.shape[-1], key.shape[-1])}"
    return reason


@prepared
def rotary_embedding_kernel(
    launcher: Launcher, query: Tensor, key: Tensor, cos: Tensor, sin: Tensor, positions: Tensor
) -> tuple[Launch, ...]:
    """As `reference.rotary_embedding`, in one launch. Raises ValueError for what no kernel takes."""
    check_shape("query", query, ("num_tokens", "num_heads", "head_dim"))
    num_tokens = query.shape[0]
    check_shape("key", key, (num_tokens, "num_kv_heads", "head_dim"))
    check_index("positions", positions, torch.int64, (num_tokens,))
    for name, table in (("cos", cos), ("sin", sin)):
        check_shape(name, table, ("num_positions", "rotary_dim"))
    refuse(rotary_problem(query, key, cos, sin))
    half, strides = cos.shape[1] // 2, (*query.stride()[:2], *key.stride()[:2])
    width = access_width(16 // query.element_size(), (half, cos.stride(0), *strides), (query, key, cos, sin))
    work = (query.shape[1] + key.shape[1]) * (half // width)
    if not num_tokens * work:
        return ()
    numbers = {
        "query_token_stride": strides[0],
        "query_head_stride": strides[1],
        "key_token_stride": strides[2],
        "key_head_stride": strides[3],
        "table_stride": cos.stride(0),
        "num_heads": query.shape[1],
        "num_kv_heads": key.shape[1],
        "half": half,
    }
    specialisation = rotary_specialisation(SCALARS[query.dtype], SCALARS[cos.dtype], width)
    return (Launch(specialisation, (num_tokens, -(-work // ROTARY_THREADS), 1), numbers),)


define(
    "rms_norm(Tensor input, Tensor weight, float eps, Tensor(a!)? residual, Tensor(b!) out) -> ()",
    reference=reference.rms_norm,
    kernel=rms_norm_kernel,
)
define(
    "silu_and_mul(Tensor input, Tensor(a!) out) -> ()",
    reference=reference.silu_and_mul,
    kernel=silu_and_mul_kernel,
)
define(
    "rotary_embedding(Tensor(a!) query, Tensor(b!) key, Tensor cos, Tensor sin, Tensor positions) -> ()",
    reference=reference.rotary_embedding,
    kernel=rotary_embedding_kernel,
)
