"""The kernels that a running engine uses, and their exchange between two of its steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from .backends.kernel import KernelAttention
from .runner import ModelRunner

if TYPE_CHECKING:
    from yaie_cuda.kernel import Specialisation

    from .llm import LLM

T = TypeVar("T")


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
    shapes = {tuple(key.shape[1:]) for key, _ in runner.cache.layers.values()} if runner else set()
    names = ("num_attention_heads", "hidden_size", "intermediate_size")
    heads, hidden, intermediate = (int(getattr(config, name, None) or 0) for name in names)
    if runner is None or len(shapes) != 1 or not (heads and hidden and intermediate):
        return None
    num_kv_heads, block_size, head_dim = shapes.pop()
    return ModelSizes(
        dtype=str(runner.cache.dtype).removeprefix("torch."),
        num_heads=heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        block_size=block_size,
        hidden=hidden,
        intermediate=intermediate,
        vocab=llm.vocab_size,
    )


def launched(llm: LLM) -> tuple[Specialisation, ...]:
    """What the engine's launcher has loaded so far; nothing where no kernels run."""
    runner = _runner(llm)
    backend = runner.cache.backend if runner else None
    return backend.kernels.launcher.loaded if isinstance(backend, KernelAttention) else ()


def exchange(llm: LLM, change: Callable[[], T]) -> T:
    """Run `change`, which replaces or restores sources of yaie_cuda, between two steps; what was captured is dropped.

    Raises:
        EngineDeadError: the engine is closed or failed.
    """
    runner = _runner(llm)

    def between_steps() -> T:
        changed = change()
        if runner is not None:
            runner.forget_graphs()
        return changed

    return llm._engine.call(between_steps)


def _runner(llm: LLM) -> ModelRunner | None:
    """What runs the engine's steps, where that is a model."""
    runner = llm._engine.runner
    return runner if isinstance(runner, ModelRunner) else None
