"""What an attention backend does for a step: write K and V, attend, copy blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from torch import Tensor

if TYPE_CHECKING:
    from yaie_engine.batch import FlatBatch

BackendName = Literal["reference", "cpu", "emulated", "cuda"]


@dataclass(frozen=True, slots=True)
class AttentionCall:
    """How one layer attends. 0 (window, softcap) and None mean off; `sinks` [num_heads]."""

    scale: float
    sliding_window: int
    softcap: float
    sinks: Tensor | None


class AttentionStep(Protocol):
    """One step's tokens, ready for every layer: where they go, and what they see."""

    def write(self, key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor) -> None:
        """Store key [num_tokens, kv_heads, head_dim] and value at the step's slots. Mutates both caches."""
        ...

    def rotate_and_write(
        self, query: Tensor, key: Tensor, value: Tensor, tables: tuple[Tensor, Tensor], caches: tuple[Tensor, Tensor]
    ) -> None:
        """Rotate query [num_tokens, heads, head_dim] in place; store the rotated key and value as `write` does.

        `tables` are cos and sin [num_tokens, rotary_dim]. Mutates both `caches`, those of keys and of values.
        """
        ...

    def attend(self, query: Tensor, key_cache: Tensor, value_cache: Tensor, call: AttentionCall) -> Tensor:
        """Attention of query [num_tokens, heads, head_dim] over what is written: [num_tokens, heads, value_dim]."""
        ...


class AttentionBackend(Protocol):
    """`name` as in `EngineConfig.attention_backend`; `reason` says in plain words why it is this one."""

    @property
    def name(self) -> BackendName: ...
    @property
    def reason(self) -> str: ...

    def step(self, batch: FlatBatch) -> AttentionStep:
        """Index tensors of `batch`, made once and read by every layer."""
        ...

    def copy_blocks(self, keys: Sequence[Tensor], values: Sequence[Tensor], pairs: Sequence[tuple[int, int]]) -> None:
        """Copy blocks, (source, destination) each, in every cache. Destinations are distinct and no source."""
        ...
