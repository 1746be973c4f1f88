"""The ops of yaie_cuda as plain functions over one launcher.

Calls go past torch's dispatcher, which costs more than a launch; arguments are those of `torch.ops.yaie.*`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from yaie_cuda.kernel import Launcher

Op = Callable[..., None]


class ModuleKernels(Protocol):
    """The kernels that stand in for modules of a model (fused.py): those of a GPU, or of the CPU."""

    @property
    def norms(self) -> tuple[Op, ...]: ...
    @property
    def gates(self) -> dict[str, Op]: ...
    @property
    def rotary_embedding(self) -> Op: ...
    @property
    def rotary_reshape_and_cache(self) -> Op: ...


@dataclass(frozen=True, slots=True)
class Kernels:
    """One function per op; all of them write to their arguments and return nothing. `launcher` starts them."""

    launcher: Any
    reshape_and_cache: Op
    rotary_reshape_and_cache: Op
    copy_blocks: Op
    paged_attention_decode: Op
    paged_attention_prefill: Op
    cascade_attention_decode: Op
    rms_norm: Op
    silu_and_mul: Op
    rotary_embedding: Op
    top_k_top_p_sample: Op
    apply_penalties: Op

    @property
    def norms(self) -> tuple[Op, ...]:
        """The norms that modules may be found to compute."""
        return (self.rms_norm,)

    @property
    def gates(self) -> dict[str, Op]:
        """The gates of MLPs, by activation."""
        return {"silu": self.silu_and_mul}

    @classmethod
    def on(cls, launcher: Launcher) -> Kernels:
        """The kernels, launched by `launcher`: on a GPU, or emulated on the CPU."""
        from yaie_cuda import attention, cache, cascade, fused, sampling

        found = {**vars(attention), **vars(cache), **vars(cascade), **vars(fused), **vars(sampling)}
        names = [field.name for field in fields(cls)[1:]]
        return cls(launcher, **{name: partial(found[f"{name}_kernel"], launcher) for name in names})
