"""Tier "paged": the model keeps its own attention and reads K and V through a cache object over our blocks.

One sequence at a time, so its own masks and position biases stay right; prefixes are shared as in the flat tier.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from yaie_cuda import reference
from yaie_cuda.paging import WriteIndex, cache_rows
from yaie_engine.batch import RunnerOutput, slots_of
from yaie_engine.kv_cache import KVCache
from yaie_engine.observation import Observer
from yaie_engine.plan import ScheduledSequence, StepPlan

from .forward import ForwardCall, collect


class PagedView(Cache):
    """One sequence of the paged cache in the shape that transformers' models expect of a cache."""

    is_compileable = False
    is_sliding: list[bool] = []  # noqa: RUF012 - a property of the base class; masks then cover all keys
    is_linear: list[bool] = []  # noqa: RUF012
    is_dummy: list[bool] = []  # noqa: RUF012

    def __init__(self, cache: KVCache, entry: ScheduledSequence, calls: dict[int, int]) -> None:
        self.layers: list[Any] = []
        self.layer_class_to_replicate = None
        self._cache, self._start, self._calls = cache, entry.start, calls
        size, device = cache.block_size, cache.device
        positions = torch.arange(entry.stop, device=device)
        table = torch.tensor(entry.table, device=device)
        self._blocks, self._offsets = table[positions // size], positions % size
        self._write = WriteIndex(torch.tensor(slots_of(entry, size), device=device), size)

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Store the new K and V [1, kv_heads, tokens, dim]; return those of all positions so far."""
        self._calls[layer_idx] = self._calls.get(layer_idx, 0) + 1
        key, value, kv_heads = key_states[0], value_states[0], key_states.shape[1]
        key_cache, value_cache = self._cache.layer(layer_idx, kv_heads, key.shape[2], value.shape[2])
        reference.write_cache(key.transpose(0, 1), value.transpose(0, 1), key_cache, value_cache, self._write)
        rows = cache_rows(self._blocks, self._offsets, kv_heads, self._cache.block_size)
        keys, values = (
            cache.view(-1, cache.shape[3]).index_select(0, rows).view(1, kv_heads, -1, cache.shape[3])
            for cache in (key_cache, value_cache)
        )
        return keys, values

    def get_conv_state(self, *_: Any, **__: Any) -> Any:
        """Hybrid models ask for this before anything else.

        Raises:
            ValueError: always; the probe then takes the tier that keeps whole states.
        """
        raise ValueError("recurrent or convolution state does not fit into blocks")

    get_recurrent_state = update_conv_state = update_recurrent_state = has_previous_state = get_conv_state

    def update_indexer(self, indexer_key_states: Tensor, layer_idx: int) -> Tensor:
        """As above for models that keep the keys of a sparse index."""
        raise ValueError("the keys of a sparse index do not fit into blocks")

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self._start

    def get_query_offset(self, layer_idx: int = 0) -> int:
        return self._start

    def get_mask_sizes(self, query_length: Any, layer_idx: int = 0) -> tuple[int, int]:
        count = query_length if isinstance(query_length, int) else int(query_length.shape[0])
        return self._start + count, 0

    def get_max_length(self, layer_idx: int | None = None) -> int:
        return -1

    def get_max_cache_shape(self, layer_idx: int = 0) -> int:
        return -1


class PagedTier:
    """For models without the attention interface, and for masks that the paged attention does not know."""

    def __init__(self, model: Any, cache: KVCache) -> None:
        self.cache = cache
        self.attention_calls: dict[int, int] = {}
        self._call = ForwardCall(model)

    def run(self, plan: StepPlan, prompt_ids: Collection[int] = ()) -> RunnerOutput:
        """One forward per sequence; `attention_calls` counts one per layer and sequence."""
        self.attention_calls = {}
        return collect(plan, prompt_ids, self._forward, self._call.observation, self.cache)

    def observe(self, observers: Sequence[Observer]) -> None:
        """Let these look at every forward."""
        self._call.observe(observers)

    def _forward(self, entry: ScheduledSequence, keep: Tensor) -> Tensor:
        view = PagedView(self.cache, entry, self.attention_calls)
        return self._call.chunk(entry, view, keep, self.cache.device)[0]

    def release(self, seq_ids: Collection[int]) -> None:
        """Nothing is kept per sequence outside of the blocks."""

    def close(self) -> None:
        self._call.observe(())
        del self._call, self.cache
