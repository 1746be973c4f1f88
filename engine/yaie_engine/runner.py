"""From a step's plan to logits: block copies, then one forward."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial

import torch

from yaie_cuda.cpu.recording import Recorder

from .backends.base import BackendName
from .backends.kernel import KernelAttention
from .batch import RunnerOutput
from .config import EngineConfig
from .device_errors import lost, within_memory
from .errors import AsleepError, EngineDeadError, ModelLoadError
from .fault_points import fault_point
from .graphs import Capture, CudaCapture, DecodeGraphs
from .host_blocks import HostBlocks
from .kv_cache import KVCache, KVLayout
from .loaded import LoadedModel
from .memory import choose_num_blocks, choose_state_bytes, free_memory, gib, give_back, kv_room
from .model_weights import ModelWeights
from .models.weights import first_line
from .observation import Observer
from .parts import Parts
from .plan import StepPlan
from .record_memory import Records, record_size
from .sleep import Freed
from .states.kept import KeptStates
from .step_memory import CudaMemory, step_bytes
from .tiers.flat import FlatTier
from .tiers.forward import Tier
from .tiers.make import make_tier

__all__ = ["ModelRunner", "RunnerOutput"]

After = Callable[[StepPlan, KVCache, RunnerOutput], None]
DEFAULT_BUDGET = {"cpu": 512, "cuda": 2048}
MOST_RENEWALS = 100
"""How often in a row a model may change itself while it runs before its decodes are not captured any more."""
WATCHED = 16
"""Steps after the load and after a replaced part in which it shows what the model does to its parts itself."""
CHANGING = "decodes run without graphs: the model replaces parts of itself again and again"
CAPTURES: dict[BackendName, Callable[[torch.device], Capture]] = {"cpu": lambda device: Recorder(), "cuda": CudaCapture}


class ModelRunner:
    """Owns the KV tensors of one loaded model and runs its steps.

    `num_blocks`, `block_size` and `max_num_batched_tokens` are what the scheduler works with. Made on any thread; `run`
    belongs to the engine thread.

    Raises:
        ModelLoadError: the KV cache does not fit into memory.
    """

    def __init__(self, loaded: LoadedModel, config: EngineConfig, after: After | None = None) -> None:
        """`after` looks at the cache when a step has run: the prefix store copies out what it is to keep."""
        self._after = after
        self.block_size = config.block_size
        self.max_num_batched_tokens = token_budget(loaded, config)
        graphs = loaded.tier == "flat" and loaded.backend.name in CAPTURES and not config.enforce_eager
        self._step_bytes = _step_bytes(loaded, config, self.max_num_batched_tokens, graphs)
        self._records = _records(loaded, config) if graphs else Records(0, 0)
        self.num_blocks = choose_num_blocks(
            config,
            loaded.kv_layout,
            loaded.dtype,
            loaded.device,
            loaded.max_model_len,
            loaded.state_bytes,
            self._step_bytes,
            self._records.num_bytes,
        )
        self.cache = KVCache(self.num_blocks, self.block_size, loaded.dtype, loaded.device, loaded.backend)
        self.host = HostBlocks(config.num_cpu_blocks, self.cache)
        self.kept: KeptStates | None = None
        if not loaded.shares_prefixes and config.enable_prefix_caching and config.state_cache_gib != 0:
            self.kept = KeptStates(choose_state_bytes(config), whole=not loaded.chunks_prefill)
        self._weights: ModelWeights | None = ModelWeights(loaded, config)
        self._tier: Tier | None = None
        self._graphs: tuple[Capture, int, int] | None = None
        self._observers: tuple[Observer, ...] = ()
        self._parts: Parts | None = None
        self._parts_asleep: Parts | None = None
        self._changed = self._stale = self._itself = False
        self._renewals = self._watched = 0
        self._reason = loaded.reason
        self._set_up(loaded)
        if self._records.rows:
            capture = CAPTURES[loaded.backend.name](loaded.device)
            self.use_graphs(capture, self._records.rows, loaded.max_model_len)

    def run(self, plan: StepPlan, prompt_logit_ids: Collection[int] = frozenset()) -> RunnerOutput:
        """Carry out `plan`: forget what was released, copy blocks, run the forward.

        The sequences in `prompt_logit_ids` get the logits of every row of their chunk.

        Raises:
            EngineDeadError: the runner is closed (AsleepError: it sleeps).
            DeviceMemoryError: the step did not fit into memory; a smaller one may.
        """
        if self._tier is None:
            raise AsleepError if self._weights else EngineDeadError("the runner is closed; load the model again")
        return within_memory(partial(self._run, self._tier, plan, prompt_logit_ids), plan, self.cache.device)

    def prepare(self, plan: StepPlan, prompt_logit_ids: Collection[int] = frozenset()) -> None:
        """Make the inputs of `plan`, the next step if all goes as expected, but for its ids. Waits for nothing."""
        if isinstance(self._tier, FlatTier):
            with torch.inference_mode():
                self._tier.prepare(plan, prompt_logit_ids)

    def replays(self, num_decodes: int) -> bool:
        """Whether a step of so many decodes, more than none, is launched as a graph that has been captured."""
        graphs = self._tier.graphs if isinstance(self._tier, FlatTier) else None
        return graphs is not None and not self._observers and num_decodes > 0 and graphs.ready(num_decodes)

    def renewed(self, begins: bool) -> bool:
        """Whether parts of the model were replaced or written since this was asked last. Engine thread, between steps.

        All of them are looked at where a request may begin (`begins`), some of them in each step.
        """
        if begins:
            self._look(everything=True)
        stale, self._stale = self._stale, False
        return stale

    @property
    def changed(self) -> bool:
        """Whether parts of the model were replaced or written since it was read, as far as seen. Any thread."""
        return self._changed

    def observe(self, observers: tuple[Observer, ...]) -> None:
        """Let these look at every forward, which then runs eagerly, also after a sleep. Engine thread only."""
        self._observers = tuple(observer for observer in observers if not observer.done)
        if self._tier is not None:
            self._tier.observe(self._observers)

    def use_graphs(self, capture: Capture, max_num_seqs: int, max_model_len: int) -> DecodeGraphs:
        """Capture the decode steps and replay them from now on. Needs tier "flat" on kernels."""
        if not isinstance(self._tier, FlatTier):
            raise ValueError("only the flat tier can be captured")
        self._graphs = capture, max_num_seqs, max_model_len
        with torch.inference_mode():
            graphs = self._tier.use_graphs(*self._graphs)
            graphs.prepare()
        return graphs

    def forget_graphs(self) -> None:
        """Drop captured steps, because a kernel was exchanged; the next ones are captured anew. Engine thread only."""
        if isinstance(self._tier, FlatTier) and self._tier.graphs is not None:
            self._tier.graphs.drop()

    @property
    def kv_layout(self) -> KVLayout:
        """What a token costs in each layer, also while nothing is allocated; no layers once it is closed."""
        return KVLayout(()) if self._weights is None else self._weights.loaded.kv_layout

    @property
    def reason(self) -> str:
        """Why the model is served as it is now, in one line; once it is closed, as it was at last. Any thread."""
        weights, tier = self._weights, self._tier
        if weights is not None:
            graphs = tier.graphs if isinstance(tier, FlatTier) else None
            remark = CHANGING if self._renewals > MOST_RENEWALS else "" if graphs is None else graphs.remark
            parts = [weights.loaded.reason, self._records.fewer, remark]
            self._reason = "; ".join(part for part in parts if part)
        return self._reason

    @property
    def attention_calls(self) -> dict[int, int]:
        """How often each layer called the paged attention in the last step."""
        return {} if self._tier is None else self._tier.attention_calls

    def sleep(self, level: int) -> Freed:
        """Give back the KV cache, what was made for steps, and the weights as far as `level` says. Engine thread only.

        Raises:
            ConfigError, ModelLoadError: the weights cannot go there; all is as it was.
        """
        if self._weights is None:
            raise EngineDeadError("the runner is closed; load the model again")
        self._look(everything=True)
        self._weights.prepare(level)
        kv_bytes, parts = self.cache.nbytes, self._parts or self._parts_asleep
        self._parts_asleep = parts if level == 1 else None  # it keeps weights alive
        self._release()
        freed = self._weights.give(level)
        give_back(self.cache.device)
        return replace(freed, kv_bytes=kv_bytes)

    def wake(self) -> LoadedModel | None:
        """Take the memory again; gives the model, where its weights were read anew. Engine thread only.

        Raises:
            ModelLoadError: memory or the model's files are not there as they were. The runner sleeps on.
        """
        weights = self._weights
        if weights is None:
            raise EngineDeadError("the runner is closed; load the model again")
        self._check_memory(weights)
        fresh, why = None, ""
        try:
            fresh = weights.take()
            self._set_up(weights.loaded)
            if self._graphs is not None:
                self.use_graphs(*self._graphs)
        except Exception as error:
            if lost(error):
                raise
            why = first_line(error)
        if why:  # outside of the handler: the error's frames would keep what was read alive
            self._release()
            weights.give_again()
            give_back(self.cache.device)
            raise ModelLoadError(why)
        weights.settle()
        asleep, self._parts_asleep = self._parts_asleep, None
        self._changed = fresh is None and (self._changed or (asleep is not None and asleep.replaced))
        return fresh

    def close(self) -> None:
        """Drop every tensor. Idempotent."""
        _ = self.reason
        self._release()
        if self._weights is not None and self._weights.loaded.fused is not None:
            self._weights.loaded.fused.restore()
        if self._weights is not None and self._weights.loaded.compiled is not None:
            self._weights.loaded.compiled.close()
        self._weights = self._parts_asleep = None

    def _set_up(self, loaded: LoadedModel) -> None:
        """Everything between the weights and a step."""
        self.model_config = loaded.model.config.get_text_config()
        self.cache.backend = loaded.backend
        if loaded.shares_prefixes:
            self._allocate(loaded.kv_layout)
        self._make_tier(loaded)

    def _make_tier(self, loaded: LoadedModel) -> None:
        self._tier = make_tier(loaded.tier, loaded.model, self.cache, self.kept)
        if isinstance(self._tier, FlatTier):
            self._tier.compiled = loaded.compiled
        self._parts, self._watched = Parts(loaded.model), WATCHED
        self._tier.observe(self._observers)

    def _release(self) -> None:
        """Drop the KV cache and whatever was made over it: tier, inputs, graphs, buffers of kernels."""
        if self._tier is not None:
            self._tier.close()
        self._tier = self._parts = None
        self.cache.clear()
        self.host.clear()
        if self.kept is not None:
            self.kept.clear()
        if isinstance(self.cache.backend, KernelAttention):
            self.cache.backend.drop_buffers()

    def _check_memory(self, weights: ModelWeights) -> None:
        """Raise ModelLoadError, which says what is needed, where waking cannot succeed."""
        loaded, kv_bytes = weights.loaded, 0
        if loaded.shares_prefixes:
            kv_bytes = self.num_blocks * self.block_size * loaded.kv_layout.bytes_per_token(loaded.dtype)
        needed = weights.missing + kv_bytes + self._step_bytes + self._records.num_bytes
        if needed > free_memory(loaded.device):  # what others have let go of may only be garbage so far
            give_back(loaded.device)
        free = free_memory(loaded.device)
        if needed > free:
            parts = [(weights.missing, "for the weights"), (kv_bytes, f"for {self.num_blocks} KV blocks")]
            parts += [(self._step_bytes, "for the largest step"), (self._records.num_bytes, "for recorded decodes")]
            what = ", ".join(f"{gib(count)} {name}" for count, name in parts if count)
            where = "on the GPU" if loaded.device.type == "cuda" else "of RAM"
            raise ModelLoadError(f"{gib(needed)} are needed ({what}), {gib(free)} {where} are free: free memory first")

    def _run(self, tier: Tier, plan: StepPlan, prompt_logit_ids: Collection[int]) -> RunnerOutput:
        if self._look() and self._tier is not None:
            tier, plan.inputs = self._tier, None
        watched = self._parts if self._watched else None
        if watched is not None and watched.written():
            self._changed = self._stale = True
        with torch.inference_mode():
            tier.release(plan.released)
            self.cache.copy(plan.copies)
            output = tier.run(plan, prompt_logit_ids)
            if watched is not None:
                self._watched -= 1
                self._itself = self._itself or watched.changed
                watched.written()  # RWKV scales its weights in its first forward: that is how it is
            if any(observer.done for observer in self._observers):
                self.observe(self._observers)
            fault_point("forward", plan, output.logits)
            if self._after is not None:
                self._after(plan, self.cache, output)
            return output

    def _look(self, everything: bool = False) -> bool:
        """Whether the model has other parts, in those whose turn it is, than its tier was made over.

        Then that is made anew, and steps are captured anew.
        """
        parts, weights = self._parts, self._weights
        if parts is None or weights is None:
            return False
        if everything and parts.written():  # the tier reads what is in a weight now
            self._changed = self._stale = True
        if not (parts.changed if everything else parts.glance()):
            return False
        loaded, self._changed, self._stale = weights.loaded, True, True
        self._renewals = self._renewals + 1 if self._itself else 0
        self._itself = False
        if loaded.compiled is not None and parts.replaced:
            loaded.compiled.give_up("a part of the model was replaced")
        if loaded.fused is not None:
            loaded.fused.renew()
        if not isinstance(self._tier, FlatTier):  # others hold no part, but what their sequences have computed
            self._parts, self._watched = Parts(loaded.model), WATCHED
            return True
        self._tier.close()
        self._make_tier(loaded)
        if self._graphs is not None and self._renewals <= MOST_RENEWALS:
            self._tier.use_graphs(*self._graphs)
        return True

    def _allocate(self, layout: KVLayout) -> None:
        try:
            self.cache.allocate(layout)
        except RuntimeError as error:  # torch.OutOfMemoryError is one; the CPU allocator raises the plain kind
            self.cache.clear()
            per_block = layout.bytes_per_token(self.cache.dtype) * self.block_size
            raise ModelLoadError(
                f"no memory for {self.num_blocks} KV blocks ({gib(self.num_blocks * per_block)}): lower num_blocks"
            ) from error
        self.host.allocate(layout)


def _step_bytes(loaded: LoadedModel, config: EngineConfig, num_tokens: int, graphs: bool) -> int:
    """What the largest step takes on a GPU; 0 on a CPU, and where num_blocks is given anyway."""
    if loaded.device.type != "cuda" or config.num_blocks is not None:
        return 0
    memory = CudaMemory(loaded.device)
    return step_bytes(loaded, memory, config.block_size, num_tokens, config.max_num_seqs, graphs)


def _records(loaded: LoadedModel, config: EngineConfig) -> Records:
    """The decodes that are captured; on a GPU their memory belongs to the largest step."""
    if loaded.device.type == "cuda":
        return Records(config.max_num_seqs, 0)
    room = kv_room(config, loaded.device)
    return Records.within(room, record_size(loaded, config.block_size), config.max_num_seqs)


def token_budget(loaded: LoadedModel, config: EngineConfig) -> int:
    """Tokens of one step. Where a prompt must go in whole, the longest one has to fit."""
    budget = config.max_num_batched_tokens or DEFAULT_BUDGET.get(loaded.device.type, 512)
    whole = not (config.enable_chunked_prefill and loaded.chunks_prefill)
    return max(budget, loaded.max_model_len) if whole else budget
