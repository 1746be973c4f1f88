"""Whether a kernel backend gives what the reference gives: every layer of the loaded model, held side by side.

The model runs on the reference's results, so that rounding in one layer cannot hide or feign a difference in the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from yaie_engine.backends.base import AttentionBackend, AttentionCall, AttentionStep, BackendName
from yaie_engine.backends.cascade import Groups
from yaie_engine.backends.choose import Wish, kernel_backend, layout_reason, refused
from yaie_engine.backends.cpu import CpuAttention
from yaie_engine.backends.kernel import KernelAttention, KernelStep
from yaie_engine.backends.kernels import Kernels
from yaie_engine.backends.reference import ReferenceAttention
from yaie_engine.batch import FlatBatch
from yaie_engine.device_errors import lost
from yaie_engine.errors import KernelError
from yaie_engine.kv_cache import GrowingKVCache
from yaie_engine.models.hub import Progress
from yaie_engine.sharing import each_alone

from .draw_check import draw_once, draw_refusal
from .flat import FlatTier
from .measure import NUM_BLOCKS, Steps, probe_sequences, run_steps
from .probe import ProbeResult
from .windows import shrunk

# Root mean square of the difference over that of the reference, worst call. Kernels keep float32 sums, the reference
# rounds probabilities to the model's dtype on some devices; a wrong mask or a wrong block is above 0.1.
TOLERANCE = {torch.bfloat16: 2e-2, torch.float16: 4e-3, torch.float32: 1e-5}
LENGTHS = (39, 22)
STEPS: Steps = ({0: 24, 1: 20}, {1: 1, 0: 14}, {0: 1, 1: 1})
"""Two chunks across block edges beside each other, a decode beside a chunk, and two decodes."""


@dataclass(slots=True)
class ComparingBackend:
    """Runs both; the reference's results go on. `error` is the worst so far, `broken` says what cannot be rounding."""

    kernel: AttentionBackend
    reference: ReferenceAttention = field(default_factory=ReferenceAttention)
    name: BackendName = "reference"
    reason: str = ""
    error: float = 0.0
    broken: str = ""

    def step(self, batch: FlatBatch) -> ComparingStep:
        """The kernels' step, plainly and as a cascade where every decode is a group of its own; and the reference's."""
        plain = self.kernel.step(batch)
        steps: list[AttentionStep] = [plain]
        if batch.num_single and isinstance(plain, KernelStep):
            groups = Groups.of(each_alone(batch.contexts[: batch.num_single], batch.block_size), batch.device)
            steps.append(replace(plain, groups=groups))
        return ComparingStep(self, steps, self.reference.step(batch))

    def copy_blocks(self, keys: Sequence[Tensor], values: Sequence[Tensor], pairs: Sequence[tuple[int, int]]) -> None:
        self.reference.copy_blocks(keys, values, pairs)


@dataclass(frozen=True, slots=True)
class ComparingStep:
    """One step of both backends over the same cache; the kernels' in all its ways."""

    owner: ComparingBackend
    kernels: Sequence[AttentionStep]
    reference: AttentionStep

    def write(self, key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor) -> None:
        """Write with both, into copies of the cache; they must be equal bit for bit."""
        copies = key_cache.clone(), value_cache.clone()
        self.kernels[0].write(key, value, *copies)
        self.reference.write(key, value, key_cache, value_cache)
        for ours, plain in zip(copies, (key_cache, value_cache), strict=True):
            if not torch.equal(ours.view(torch.uint8), plain.view(torch.uint8)):
                self.owner.broken = "writes other K and V to the cache than the reference"

    def rotate_and_write(
        self, query: Tensor, key: Tensor, value: Tensor, tables: tuple[Tensor, Tensor], caches: tuple[Tensor, Tensor]
    ) -> None:
        """No module leaves its rotation to the write yet: that is tried when this check has passed."""
        self.reference.rotate_and_write(query, key, value, tables, caches)

    def attend(self, query: Tensor, key_cache: Tensor, value_cache: Tensor, call: AttentionCall) -> Tensor:
        """Attend with both."""
        plain = self.reference.attend(query, key_cache, value_cache, call)
        size = plain.double().square().mean().sqrt().clamp_min(1e-30)
        for step in self.kernels:
            ours = step.attend(query, key_cache, value_cache, call).double()
            error = (ours - plain.double()).square().mean().sqrt() / size
            self.owner.error = max(self.owner.error, float(error.nan_to_num(nan=torch.inf)))
        return plain


def choose_backend(
    wish: Wish, model: Any, result: ProbeResult, block_size: int, max_model_len: int, report: Progress
) -> AttentionBackend:
    """The backend of `wish` if it serves this model and gives what the reference gives, else the reference.

    Raises:
        ConfigError: it does not, and nothing else was asked for.
        EngineDeadError: a kernel took the GPU down with it; no other backend works either.
    """
    weight = next(model.parameters())
    if wish.name == "reference":
        return ReferenceAttention(wish.reason)
    why_not = layout_reason(wish.name, result.layout, weight.dtype, block_size)
    if result.tier != "flat":
        why_not = f"tier {result.tier!r} keeps the model's own attention"
    if not why_not:
        cache = GrowingKVCache(NUM_BLOCKS, block_size, weight.dtype, weight.device)
        try:
            backend = _backend(wish.name, model, cache, result, max_model_len, report)
            report("checking kernels", None)
            error = _compare(model, backend, cache, max_model_len)
            if isinstance(backend, KernelAttention):
                backend.draw_refused = draw_refusal(backend.kernels, result.vocab_size, weight.device)
            backend.reason = f"{wish.reason}; every layer equals the reference within {error:.1e}"
            return backend
        except Exception as failure:  # whatever a kernel raises rules it out, nothing else
            if (dead := lost(failure)) is not None:
                raise dead from failure
            why_not = f"{type(failure).__name__}: {(str(failure).splitlines() or [''])[0][:160]}"
    if wish.required:
        raise refused(wish.name, why_not)
    return ReferenceAttention(why_not)


def _backend(
    name: BackendName, model: Any, cache: GrowingKVCache, result: ProbeResult, max_model_len: int, report: Progress
) -> KernelAttention | CpuAttention:
    """The backend with all its kernels built."""
    if name == "cpu":
        report("building CPU kernels", None)
        return CpuAttention()
    backend = kernel_backend(name, cache.device)
    backend.gate.longest = max(max_model_len, *LENGTHS)  # the check itself has contexts of some length
    _warm_up(model, backend, cache, result.vocab_size, report)
    return backend


def _warm_up(model: Any, backend: KernelAttention, cache: GrowingKVCache, vocab_size: int, report: Progress) -> None:
    """Compile the kernels that this model's layers and the draw of its tokens ask for, all at once, with progress."""
    from yaie_cuda.dry_run import DryRun

    launcher = backend.kernels.launcher
    dry, draws = DryRun(launcher), DryRun(launcher)
    cache.backend = ComparingBackend(KernelAttention(Kernels.on(dry), backend.name))
    _run(model, cache)
    with suppress(Exception):  # the check of the draw meets the same error, and says it
        draw_once(Kernels.on(draws), vocab_size, cache.device)

    def heard(done: int, wanted: int) -> None:
        report("compiling kernels", done / wanted)

    try:
        launcher.warm_up([*dry.specialisations, *draws.specialisations], heard)
    except Exception:  # a draw that does not compile is no reason against attention
        launcher.warm_up(dry.specialisations, heard)


def _compare(model: Any, backend: AttentionBackend, cache: GrowingKVCache, max_model_len: int) -> float:
    """Run `model` on both over `cache`; the worst difference, relative to the reference.

    A second run shortens the windows that are longer than the first run's contexts.

    Raises:
        KernelError: they differ by more than rounding.
    """
    comparing = ComparingBackend(backend)
    cache.backend = comparing
    _run(model, cache)
    with shrunk(model, max_model_len) as anything:
        if anything:
            _run(model, cache)
    if comparing.broken:
        raise KernelError(comparing.broken)
    if not comparing.error <= TOLERANCE[cache.dtype]:
        raise KernelError(f"attention differs from the reference by {comparing.error:.1e} of its size")
    return comparing.error


def _run(model: Any, cache: GrowingKVCache) -> None:
    vocab = int(model.get_input_embeddings().weight.shape[0])
    tier = FlatTier(model, cache)
    try:
        run_steps(tier, probe_sequences(vocab, LENGTHS, cache.block_size), STEPS)
    finally:
        tier.close()
