"""From a step's plan to logits: block copies, then one forward."""

from __future__ import annotations

from collections.abc import Collection

import torch

from .batch import RunnerOutput
from .config import EngineConfig
from .errors import EngineDeadError, ModelLoadError
from .kv_cache import KVCache, KVLayout
from .loaded import LoadedModel
from .memory import choose_num_blocks, gib
from .plan import StepPlan
from .tiers.forward import Tier
from .tiers.make import make_tier

__all__ = ["ModelRunner", "RunnerOutput"]

DEFAULT_BUDGET = {"cpu": 512, "cuda": 2048}


class ModelRunner:
    """Owns the KV tensors of one loaded model and runs its steps.

    `num_blocks`, `block_size` and `max_num_batched_tokens` are what the scheduler works with. Made on any thread; `run`
    belongs to the engine thread.

    Raises:
        ModelLoadError: the KV cache does not fit into memory.
    """

    def __init__(self, loaded: LoadedModel, config: EngineConfig) -> None:
        self.block_size = config.block_size
        self.num_blocks = choose_num_blocks(
            config, loaded.kv_layout, loaded.dtype, loaded.device, loaded.max_model_len, loaded.state_bytes
        )
        self.max_num_batched_tokens = token_budget(loaded, config)
        self.cache = KVCache(self.num_blocks, self.block_size, loaded.dtype, loaded.device, loaded.backend)
        if loaded.shares_prefixes:
            self._allocate(loaded.kv_layout)
        self._tier: Tier | None = make_tier(loaded.tier, loaded.model, self.cache)

    def run(self, plan: StepPlan, prompt_logit_ids: Collection[int] = frozenset()) -> RunnerOutput:
        """Carry out `plan`: forget what was released, copy blocks, run the forward.

        The sequences in `prompt_logit_ids` get the logits of every row of their chunk.

        Raises:
            EngineDeadError: the runner is closed.
        """
        if self._tier is None:
            raise EngineDeadError("the runner is closed; load the model again")
        with torch.inference_mode():
            self._tier.release(plan.released)
            self.cache.copy(plan.copies)
            return self._tier.run(plan, prompt_logit_ids)

    @property
    def attention_calls(self) -> dict[int, int]:
        """How often each layer called the paged attention in the last step."""
        return {} if self._tier is None else self._tier.attention_calls

    def close(self) -> None:
        """Drop every tensor. Idempotent."""
        if self._tier is not None:
            self._tier.close()
        self._tier = None
        self.cache.clear()

    def _allocate(self, layout: KVLayout) -> None:
        try:
            self.cache.allocate(layout)
        except RuntimeError as error:  # torch.OutOfMemoryError is one; the CPU allocator raises the plain kind
            self.cache.clear()
            per_block = layout.bytes_per_token(self.cache.dtype) * self.block_size
            raise ModelLoadError(
                f"no memory for {self.num_blocks} KV blocks ({gib(self.num_blocks * per_block)}): lower num_blocks"
            ) from error


def token_budget(loaded: LoadedModel, config: EngineConfig) -> int:
    """Tokens of one step. Where a prompt must go in whole, the longest one has to fit."""
    budget = config.max_num_batched_tokens or DEFAULT_BUDGET.get(loaded.device.type, 512)
    whole = not (config.enable_chunked_prefill and loaded.chunks_prefill)
    return max(budget, loaded.max_model_len) if whole else budget
