"""The CPU kernels on tensors: what stands between matrix products, attention of single rows, and small products.

Names and arguments are those of the ops (`torch.ops.yaie.*`), where rows are always [rows, n]; results are written to
arguments. What does not fit raises ValueError, what no kernel takes UnservedError, both before anything is written: a
kernel believes its sizes. The checks are made of few and cheap looks, since a call takes microseconds in all.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from yaie_cuda.checks import UnservedError

from .library import DTYPES, check, library
from .pages import Pages
from .recording import active

LANES = 16
"""Scalars of a vector (vectors.hpp)."""
PANEL = 64
"""Outputs of a panel (linear.hpp)."""


def dtype_reason(dtype: torch.dtype) -> str:
    """Why no CPU kernel takes `dtype`; "" when they do."""
    if dtype in DTYPES:
        return ""
    return f"the CPU kernels take {' and '.join(DTYPES.values())}, not {str(dtype).removeprefix('torch.')}"


def unsupported_reason(dtype: torch.dtype, key_dim: int, value_dim: int) -> str:
    """Why no CPU kernel attends over such a cache; "" when one does."""
    if key_dim % LANES or value_dim % LANES:
        return f"the CPU kernels take heads of a multiple of {LANES} numbers, not {key_dim} and {value_dim}"
    return dtype_reason(dtype)


class CpuKernels:
    """The kernels of this machine. Raises as `build`; OSError where the library cannot be loaded."""

    def __init__(self) -> None:
        self._functions = library().functions
        self._pages = Pages()  # of packed weights: the kernels of one model

    def rms_norm(self, input: Tensor, weight: Tensor, eps: float, residual: Tensor | None, out: Tensor) -> None:
        """As `reference.rms_norm`; `input`, `residual` and `out` [rows, hidden], `weight` [hidden]."""
        self._norm("rms_norm", input, weight, eps, residual, out)

    def rms_norm_wide(self, input: Tensor, weight: Tensor, eps: float, residual: Tensor | None, out: Tensor) -> None:
        """As `rms_norm`, rounded once, after the product with the weight (OLMo 2)."""
        self._norm("rms_norm_wide", input, weight, eps, residual, out)

    def rms_norm_one_plus(
        self, input: Tensor, weight: Tensor, eps: float, residual: Tensor | None, out: Tensor
    ) -> None:
        """As `rms_norm_wide` with 1 + `weight` (Gemma)."""
        self._norm("rms_norm_one_plus", input, weight, eps, residual, out)

    @property
    def norms(self) -> tuple[Callable[..., None], ...]:
        """All of them: which one a module computes is found by trying."""
        return self.rms_norm, self.rms_norm_wide, self.rms_norm_one_plus

    @property
    def gates(self) -> dict[str, Callable[..., None]]:
        """The gates of MLPs by activation: "silu", and "gelu_tanh" as `F.gelu(approximate="tanh")`."""
        return {"silu": self.silu_and_mul, "gelu_tanh": self.gelu_tanh_and_mul}

    def _norm(self, name: str, input: Tensor, weight: Tensor, eps: float, residual: Tensor | None, out: Tensor) -> None:
        rows, hidden = input.shape
        dtype, total = input.dtype, out if residual is None else residual
        _fits(out.shape == total.shape == input.shape and weight.shape[0] == hidden, name, input, weight, out)
        same = dtype == weight.dtype == out.dtype == total.dtype and not hidden % LANES
        _serves(same and _runs(input, weight, out, total), name, input, weight, out)
        self._run(
            *(name, dtype, rows * hidden, (input, weight, residual, out)),
            *(input.data_ptr(), input.stride(0), weight.data_ptr(), eps),
            *(0 if residual is None else residual.data_ptr(), total.stride(0), out.data_ptr(), out.stride(0)),
            *(rows, hidden, torch.get_num_threads()),
        )

    def silu_and_mul(self, input: Tensor, out: Tensor) -> None:
        """As `reference.silu_and_mul`; `input` [rows, 2 * width], `out` [rows, width]."""
        self._gate("silu_and_mul", input, out)

    def gelu_tanh_and_mul(self, input: Tensor, out: Tensor) -> None:
        """As `silu_and_mul` with `F.gelu(approximate="tanh")`."""
        self._gate("gelu_tanh_and_mul", input, out)

    def _gate(self, name: str, input: Tensor, out: Tensor) -> None:
        rows, width = out.shape
        _fits(input.shape == (rows, 2 * width), name, input, out)
        _serves(input.dtype == out.dtype and not width % LANES and _runs(input, out), name, input, out)
        self._run(
            *(name, input.dtype, 8 * rows * width, (input, out)),
            *(input.data_ptr(), input.stride(0), out.data_ptr(), out.stride(0), rows, width, torch.get_num_threads()),
        )

    def best_of(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """As `ranking.best_of`: value and id, int64, of the best of each row of `scores` [rows, n]; NaN is better."""
        rows, width = scores.shape
        _fits(width > 0, "best_of", scores)
        _serves(_runs(scores), "best_of", scores)
        best, ids = scores.new_empty(rows), scores.new_empty(rows, dtype=torch.int64)
        self._run(
            *("best_of", scores.dtype, rows * width, (scores, best, ids)),
            *(scores.data_ptr(), scores.stride(0), best.data_ptr(), ids.data_ptr(), rows, width),
            torch.get_num_threads(),
        )
        return best, ids

    def rotary_embedding(self, query: Tensor, key: Tensor, cos: Tensor, sin: Tensor, positions: Tensor | None) -> None:
        """As `reference.rotary_embedding`; without `positions` row i of the tables is for token i."""
        tokens, heads, dim = query.shape
        kv_heads, width = key.shape[1], cos.shape[1]
        fits = key.shape == (tokens, kv_heads, dim) and cos.shape == sin.shape and width <= dim and not width % 2
        rows = tokens if positions is None else len(positions)
        fits = fits and rows == tokens and (positions is not None or len(cos) >= tokens)
        _fits(fits, "rotary_embedding", query, key, cos, sin)
        same = query.dtype == key.dtype and cos.dtype == sin.dtype and cos.dtype in (query.dtype, torch.float32)
        same = same and cos.stride() == sin.stride()
        same = same and (positions is None or (positions.is_contiguous() and positions.dtype == torch.int64))
        _serves(same and _runs(query, key, cos), "rotary_embedding", query, key, cos, sin)
        self._run(
            *("rotary", query.dtype, 4 * tokens * (heads + kv_heads) * dim, (query, key, cos, sin, positions)),
            *(query.data_ptr(), query.stride(0), query.stride(1), heads),
            *(key.data_ptr(), key.stride(0), key.stride(1), kv_heads, dim),
            *(cos.data_ptr(), sin.data_ptr(), cos.dtype == torch.float32, cos.stride(0)),
            *(0 if positions is None else positions.data_ptr(), width // 2, tokens, torch.get_num_threads()),
        )

    def reshape_and_cache(
        self, key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slot_mapping: Tensor
    ) -> None:
        """Store key and value [num_tokens, num_kv_heads, head_dim] at `slot_mapping` int64 [num_tokens]."""
        tokens, heads, dim = key.shape
        size, value_dim = key_cache.shape[2], value.shape[2]
        fits = key_cache.shape[1:] == (heads, size, dim) and value_cache.shape[1:] == (heads, size, value_dim)
        fits = fits and value.shape[:2] == (tokens, heads) and slot_mapping.shape == (tokens,)
        _fits(fits, "reshape_and_cache", key, value, key_cache, value_cache, slot_mapping)
        same = key.dtype == value.dtype == key_cache.dtype == value_cache.dtype and slot_mapping.dtype == torch.int64
        _serves(
            same and _runs(key, value, slot_mapping) and _paged(key_cache) and _paged(value_cache),
            *("reshape_and_cache", key, value, key_cache, value_cache, slot_mapping),
        )
        self._run(
            *("write_cache", key.dtype, tokens * heads * (dim + value_dim)),
            (key, value, key_cache, value_cache, slot_mapping),
            *(key.data_ptr(), key.stride(0), key.stride(1), dim),
            *(value.data_ptr(), value.stride(0), value.stride(1), value_dim, heads),
            *(key_cache.data_ptr(), key_cache.stride(0), value_cache.data_ptr(), value_cache.stride(0)),
            *(size, slot_mapping.data_ptr(), tokens, torch.get_num_threads()),
        )

    def rotary_reshape_and_cache(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        cos: Tensor,
        sin: Tensor,
        key_cache: Tensor,
        value_cache: Tensor,
        slot_mapping: Tensor,
    ) -> None:
        """Rotate query and key in place, row i of the tables for token i, then store key and value."""
        self.rotary_embedding(query, key, cos, sin, None)
        self.reshape_and_cache(key, value, key_cache, value_cache, slot_mapping)

    def attend_rows(
        self,
        query: Tensor,
        key_cache: Tensor,
        value_cache: Tensor,
        block_tables: Tensor,
        context_lens: Tensor,
        scale: float,
        sliding_window: int,
        softcap: float,
        sinks: Tensor | None,
        out: Tensor,
        work: int,
    ) -> None:
        """As `paged_attention_decode` with one query row a sequence: `query` and `out` [num_seqs, num_heads, head_dim].

        `block_tables` int32 [num_seqs, max_blocks], `context_lens` int32 [num_seqs]; `sinks` [num_heads], float32 or of
        the query's dtype; `work` is how many tokens all rows see together. A context of 0 gives 0.
        """
        num_seqs, heads, dim = query.shape
        tensors = query, key_cache, value_cache, block_tables, context_lens, out
        _fits(block_tables.shape[0] == num_seqs and context_lens.shape == (num_seqs,), "attend_rows", *tensors)
        caches, sink, sizes = _attention("attend_rows", *tensors, sinks)
        self._run(
            *("attend", query.dtype, 2 * work * heads * dim, (*tensors, sinks)),
            *(*caches, context_lens.data_ptr(), scale, softcap, sliding_window, *sink),
            *(out.data_ptr(), num_seqs, *sizes, torch.get_num_threads()),
        )

    def attend_chunks(
        self,
        query: Tensor,
        key_cache: Tensor,
        value_cache: Tensor,
        block_tables: Tensor,
        starts: Tensor,
        context_lens: Tensor,
        scale: float,
        sliding_window: int,
        softcap: float,
        sinks: Tensor | None,
        out: Tensor,
        work: int,
    ) -> None:
        """As `paged_attention_prefill`: chunk i has rows [starts[i], starts[i + 1]) of `query` and `out`.

        They are [num_tokens, num_heads, head_dim], `starts` int32 [num_seqs + 1]; the rest as in `attend_rows`. A chunk
        is the last of its context; `work` is how many tokens all rows may see together.
        """
        tensors = query, key_cache, value_cache, block_tables, context_lens, out
        num_seqs, (_, heads, dim) = block_tables.shape[0], query.shape
        fits = context_lens.shape == (num_seqs,) and starts.shape == (num_seqs + 1,)
        _fits(fits, "attend_chunks", *tensors, starts)
        _serves(starts.dtype == torch.int32 and starts.is_contiguous(), "attend_chunks", query, starts)
        caches, sink, sizes = _attention("attend_chunks", *tensors, sinks)
        self._run(
            *("attend_chunks", query.dtype, 2 * work * heads * dim, (*tensors, starts, sinks)),
            *(*caches, context_lens.data_ptr(), starts.data_ptr(), scale, softcap, sliding_window, *sink),
            *(out.data_ptr(), num_seqs, *sizes, torch.get_num_threads()),
        )

    def linear(self, rows: Tensor, packed: Tensor, bias: Tensor | None, out_features: int) -> Tensor:
        """`rows` [.., in_features] times a weight that `pack` laid out: [.., out_features], in the rows' dtype."""
        _fits(packed.dtype == rows.dtype, "linear", rows, packed)
        return self._linear("linear", rows, (packed,), bias, out_features)

    def linear_int8(
        self, rows: Tensor, packed: Tensor, scales: Tensor, bias: Tensor | None, out_features: int
    ) -> Tensor:
        """As `linear`, with a weight of whole numbers that `pack_int8` laid out; sums are float32 times `scales`."""
        fits = packed.dtype == torch.int8 and scales.dtype == torch.float32 and scales.is_contiguous()
        _fits(fits and scales.numel() == -(-out_features // PANEL) * PANEL, "linear_int8", rows, packed, scales)
        return self._linear("linear_int8", rows, (packed, scales), bias, out_features)

    def _linear(
        self, name: str, rows: Tensor, weight: tuple[Tensor, ...], bias: Tensor | None, out_features: int
    ) -> Tensor:
        in_features = rows.shape[-1]
        if not rows.is_contiguous():
            rows = rows.contiguous()
        out = rows.new_empty((*rows.shape[:-1], out_features))
        count = rows.numel() // in_features
        fits = weight[0].numel() == in_features * -(-out_features // PANEL) * PANEL
        _fits(fits and (bias is None or bias.shape == (out_features,)), name, rows, *weight)
        _serves(bias is None or (bias.dtype == rows.dtype and bias.is_contiguous()), name, rows, *weight)
        self._run(
            *(name, rows.dtype, count * in_features * out_features // 8, (rows, *weight, bias, out)),
            *(rows.data_ptr(), in_features, *(part.data_ptr() for part in weight)),
            *(0 if bias is None else bias.data_ptr(), out.data_ptr(), out_features, count, in_features, out_features),
            torch.get_num_threads(),
        )
        return out

    def pack(self, weight: Tensor) -> Tensor | None:
        """`weight` [out_features, in_features] as `linear` reads it; None where torch's own product is as good.

        That is where the CPU has no wide vectors for the dtype, or tiles for matrices (AMX).
        """
        step = {torch.float32: 1, torch.bfloat16: 2}.get(weight.dtype)
        if step is None or weight.dtype not in library().products or weight.shape[1] % step:
            return None
        return _panels(weight, step, self._pages)

    def packed(self) -> None:
        """Nothing more is packed for now: let go of the memory that is left, and with it of what lies beside it."""
        self._pages = Pages()

    def pack_int8(self, weight: Tensor, scales: Tensor) -> tuple[Tensor, Tensor]:
        """int8 `weight` [out_features, in_features] and float32 `scales` [out_features] as `linear_int8` reads them."""
        return _panels(weight, 1, self._pages), _whole(scales)

    def _run(
        self, name: str, dtype: torch.dtype, work: int, tensors: tuple[Tensor | None, ...], *arguments: float
    ) -> None:
        """Call a kernel for `work` multiplications; `tensors` are those whose addresses are among `arguments`."""
        function = self._functions[name, dtype]
        check(function.of(work)(*arguments))
        if (recording := active()) is not None:
            recording.call(function, arguments, tensors)


def _attention(
    name: str,
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_tables: Tensor,
    context_lens: Tensor,
    out: Tensor,
    sinks: Tensor | None,
) -> tuple[tuple[int, ...], tuple[int, int], tuple[int, ...]]:
    """Arguments that attention of any rows has, once they fit: query to block tables, sinks, heads and sizes."""
    tensors = query, key_cache, value_cache, block_tables, context_lens, out
    rows, heads, dim = query.shape
    _, kv_heads, size, value_dim = value_cache.shape
    fits = key_cache.shape[1:] == (kv_heads, size, dim) and out.shape == (rows, heads, value_dim)
    _fits(fits and not heads % kv_heads and (sinks is None or sinks.shape == (heads,)), name, *tensors)
    same = query.dtype == key_cache.dtype == value_cache.dtype == out.dtype and not (dim | value_dim) % LANES
    ints = block_tables.dtype == context_lens.dtype == torch.int32 and _runs(block_tables, context_lens)
    runs = query.stride(2) == 1 and (heads == 1 or query.stride(1) == dim) and out.is_contiguous()
    wide = sinks is not None and sinks.dtype == torch.float32
    runs = runs and (sinks is None or ((wide or sinks.dtype == query.dtype) and sinks.is_contiguous()))
    _serves(same and ints and runs and _paged(key_cache) and _paged(value_cache), name, *tensors)
    caches = (
        *(query.data_ptr(), query.stride(0), key_cache.data_ptr(), key_cache.stride(0)),
        *(value_cache.data_ptr(), value_cache.stride(0), size, block_tables.data_ptr(), block_tables.stride(0)),
    )
    return caches, (0 if sinks is None else sinks.data_ptr(), wide), (heads, kv_heads, dim, value_dim)


def _panels(weight: Tensor, step: int, pages: Pages) -> Tensor:
    weight = _whole(weight)
    rows, in_features = weight.shape
    panels = weight.reshape(rows // PANEL, PANEL, in_features // step, step).transpose(1, 2)
    packed = pages.empty(weight.numel(), weight.dtype)
    packed.view(panels.shape).copy_(panels)
    return packed


def _whole(rows: Tensor) -> Tensor:
    """`rows` with zeros behind them, up to a whole panel."""
    missing = -len(rows) % PANEL
    return torch.cat((rows, rows.new_zeros(missing, *rows.shape[1:]))) if missing else rows.contiguous()


def _runs(*tensors: Tensor) -> bool:
    """Whether the last dimension of each is one run in memory."""
    return all(tensor.stride(-1) == 1 for tensor in tensors)


def _paged(cache: Tensor) -> bool:
    """Whether a block of `cache` [num_blocks, heads, block_size, dim] is one run in memory."""
    dim = cache.shape[3]
    return cache.stride(3) == 1 and cache.stride(2) == dim and cache.stride(1) == dim * cache.shape[2]


def _fits(condition: bool, name: str, *tensors: Tensor) -> None:
    if not condition:
        raise ValueError(f"{name}: these do not fit each other: {_described(tensors)}")


def _serves(condition: bool, name: str, *tensors: Tensor) -> None:
    if not condition or tensors[0].dtype not in DTYPES:
        raise UnservedError(f"{name}: no CPU kernel takes {_described(tensors)}")


def _described(tensors: tuple[Tensor, ...]) -> str:
    return ", ".join(f"{list(one.shape)} {one.dtype} with strides {list(one.stride())}" for one in tensors)
