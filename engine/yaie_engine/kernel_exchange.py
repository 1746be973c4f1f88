"""The kernels that running engines use, and their exchange between two steps of all of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Event, Lock
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakKeyDictionary

import torch

from .backends.kernel import KernelAttention
from .errors import EngineDeadError, YaieError
from .kernel_gate import GATE
from .runner import ModelRunner
from .tiers.flat import FlatTier

if TYPE_CHECKING:
    from yaie_cuda.kernel import Specialisation

    from .llm import LLM

T = TypeVar("T")
STEP_S = 60.0  # how long engines may take to come to the end of their steps
_exchanging, _noting = Lock(), Lock()
# A launcher forgets what it loaded when a source changes; the engine will need it again.
_seen: WeakKeyDictionary[LLM, dict[Specialisation, None]] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class ModelSizes:
    """What the shapes of kernels follow from; `dtype` as in "bfloat16"."""

    dtype: str
    num_heads: int
    num_kv_heads: int
    head_dim: int
    block_size: int
    hidden: int
    intermediate: int
    vocab: int


def model_sizes(llm: LLM) -> ModelSizes | None:
    """The sizes of the engine's model; None where its configuration does not tell them, or layers differ."""
    runner = _runner(llm)
    config = runner.model_config if runner else None
    layers = runner.kv_layout.layers if runner else ()
    shapes = {(part.kv_heads, part.key_dim) for part in layers}
    names = ("num_attention_heads", "hidden_size", "intermediate_size")
    heads, hidden, intermediate = (int(getattr(config, name, None) or 0) for name in names)
    if runner is None or len(shapes) != 1 or not (heads and hidden and intermediate):
        return None
    num_kv_heads, head_dim = shapes.pop()
    return ModelSizes(
        dtype=str(runner.cache.dtype).removeprefix("torch."),
        num_heads=heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        block_size=runner.block_size,
        hidden=hidden,
        intermediate=intermediate,
        vocab=llm.vocab_size,
    )


def users() -> tuple[LLM, ...]:
    """The open engines of this process that run kernels, whoever loaded them: sources are replaced for all of them."""
    from .llm import _OPEN

    return tuple(llm for llm in list(_OPEN) if llm._engine.alive and _backend(llm) is not None)


def launched(llm: LLM) -> tuple[Specialisation, ...]:
    """What the engine's launcher has loaded so far; nothing where no kernels run."""
    backend = _backend(llm)
    if backend is None:
        return ()
    with _noting:
        seen = _seen.setdefault(llm, {})
        seen.update(dict.fromkeys(backend.kernels.launcher.loaded))
        return tuple(seen)


class _Hold:
    """Keeps an engine between two of its steps, from when it comes there until `end`.

    Raises EngineDeadError where there is no next step.
    """

    def __init__(self, llm: LLM) -> None:
        self._llm = llm
        self._here, self._may_go, self._gone = Event(), Event(), Event()
        self._changed = False
        self.error: Exception | None = None
        llm._engine._post(self._between_steps)

    def wait(self, deadline: float) -> bool:
        """Whether the engine is there, at `deadline` (of the monotonic clock) at the latest."""
        return self._here.wait(max(0.0, deadline - time.monotonic()))

    def let_go(self, changed: bool) -> None:
        """The engine goes on; where sources `changed`, without anything that was made by the old ones."""
        self._changed = changed
        self._may_go.set()

    def end(self) -> None:
        """Wait until it has gone on. Raises what went wrong on the way."""
        self._gone.wait(STEP_S)
        if self.error is not None:
            raise self.error

    def _between_steps(self) -> None:
        self._here.set()
        self._may_go.wait()
        try:
            if self._changed:
                # No KV of other kernels stays, nor does any come later: what runs is computed again from its tokens.
                self._llm._engine.scheduler.rebuild()
                if (runner := _runner(self._llm)) is not None:
                    _capture_anew(runner)
        except Exception as error:
            self.error = error
        finally:
            self._gone.set()


def _capture_anew(runner: ModelRunner) -> None:
    """Decodes are captured with the new kernels while nobody waits for a step."""
    runner.forget_graphs()
    tier = runner._tier
    if isinstance(tier, FlatTier) and tier.graphs is not None:
        with torch.inference_mode():
            tier.graphs.prepare()


def exchange(change: Callable[[], T]) -> T:
    """Run `change`, which replaces or restores sources of yaie_cuda, while every engine is between two steps.

    Where a source changed, engines drop what they captured and all KV, and compute running requests again. `change`
    must not call an engine or load one; loads wait, and are waited for. Thread: any but an engine's.

    Raises:
        YaieError: an engine did not end its step or its load in time; nothing was changed.
    """
    from yaie_cuda import sources

    with _exchanging:  # of two that hold some engines each, neither would ever have all
        deadline, before, held = time.monotonic() + STEP_S, sources.generation, []
        if not GATE.close(deadline):
            raise YaieError("an engine is being loaded; kernels stay as they are: try again when that is done")
        try:
            for llm in users():
                launched(llm)
                try:
                    held.append(_Hold(llm))
                except EngineDeadError:
                    continue  # closed a moment ago
            if not all(each.wait(deadline) for each in held):
                raise YaieError(f"an engine did not end its step within {STEP_S:g} s; kernels stay as they are")
            before = sources.generation
            result = change()
        finally:
            GATE.open()
            for each in held:
                each.let_go(sources.generation != before)
        for each in held:
            each.end()
        return result


def _backend(llm: LLM) -> KernelAttention | None:
    """What runs the engine's kernels, if it has any."""
    runner = _runner(llm)
    backend = runner.cache.backend if runner else None
    return backend if isinstance(backend, KernelAttention) else None


def _runner(llm: LLM) -> ModelRunner | None:
    """What runs the engine's steps, where that is a model."""
    runner = llm._engine.runner
    return runner if isinstance(runner, ModelRunner) else None
