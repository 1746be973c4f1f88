"""A model that is ready to serve, and what is known about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch

from .backends.base import AttentionBackend
from .backends.cpu import CpuAttention
from .backends.kernel import KernelAttention
from .compiled import CompiledForward
from .fused import FusedModules
from .kernel_draw import KernelDraw
from .kv_cache import KVLayout
from .memory import give_back
from .models.source import Source
from .ranking import BestOf, best_by, best_of
from .snapshot import ModelInfo

TierName = Literal["flat", "paged", "state"]


@dataclass(slots=True)
class LoadedModel:
    """What the loader hands to the engine.

    `model` is in eval mode, on `device`, with its RoPE frozen for `max_model_len` and its attention set for `tier`;
    `hf_tokenizer` is None when a model object came without one. `vocab_size` is the width of the logits, which may be
    more than the tokenizer knows. `shares_prefixes`: KV lies in blocks that others can read. `chunks_prefill`: a prompt
    may be spread over steps. `backend` serves the attention of tier "flat"; `fused` says which modules run as kernels
    (None: the backend has none). `compiled` is the forward by torch.compile where that is asked for, and `not_compiled`
    why there is none all the same. `state_bytes`: memory of one sequence outside of the blocks (recurrent state).
    `source` is where the weights were read; None for a model object that was handed in.
    """

    model: Any
    hf_tokenizer: Any
    name: str
    fingerprint: str
    dtype: torch.dtype
    device: torch.device
    tier: TierName
    tier_reason: str
    shares_prefixes: bool
    chunks_prefill: bool
    max_model_len: int
    vocab_size: int
    eos_token_ids: tuple[int, ...]
    kv_layout: KVLayout
    backend: AttentionBackend
    fused: FusedModules | None = None
    compiled: CompiledForward | None = None
    not_compiled: str = ""
    state_bytes: int = 0
    source: Source | None = None

    @property
    def num_layers(self) -> int:
        """Layers that keep K and V."""
        return len(self.kv_layout.layers)

    @property
    def reason(self) -> str:
        """Why it is served as it is, in one line: tier, attention, the draw of tokens, fused modules."""
        parts = [self.tier_reason, f"{self.backend.name} attention: {self.backend.reason}"]
        if isinstance(self.backend, KernelAttention):
            drawn = f"tokens are drawn by torch: {self.backend.draw_refused}" if self.backend.draw_refused else ""
            parts += [part for part in (self.backend.gate.reason, drawn) if part]
        if self.compiled is not None or self.not_compiled:
            parts.append(str(self.compiled or f"not compiled: {self.not_compiled}"))
        return "; ".join([*parts, *([str(self.fused)] if self.fused else [])])

    @property
    def info(self) -> ModelInfo:
        """The model as snapshots show it."""
        return ModelInfo(
            name=self.name,
            fingerprint=self.fingerprint,
            dtype=str(self.dtype).removeprefix("torch."),
            device=str(self.device),
            tier=self.tier,
            attention_backend=self.backend.name,
            reason=self.reason,
            max_model_len=self.max_model_len,
        )

    @property
    def draw_kernel(self) -> KernelDraw | None:
        """The sampling kernels, where the backend has kernels and these drew the torch sampler's tokens."""
        if not isinstance(self.backend, KernelAttention) or self.backend.draw_refused:
            return None
        return KernelDraw(self.backend.kernels.top_k_top_p_sample, self.backend.kernels.apply_penalties)

    @property
    def best_of(self) -> BestOf:
        """What finds the best logit of each row."""
        return best_by(self.backend.kernels.best_of) if isinstance(self.backend, CpuAttention) else best_of

    def close(self) -> None:
        """Let go of the weights; a model object that was handed in lives on with its owner."""
        if self.compiled is not None:
            self.compiled.close()
        self.model = self.hf_tokenizer = None
        give_back(self.device)
