"""What a check is asked: which kernel, from which text, for whom. Plain data, sent as JSON. Knows no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

EMULATED = "emulated"
Also = tuple[tuple[tuple[tuple[str, str], ...], int, int], ...]


@dataclass(frozen=True, slots=True)
class ModelSizes:
    """The sizes of a model: those that cases are made for."""

    dtype: str = "bfloat16"
    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 64
    block_size: int = 16
    hidden: int = 256
    intermediate: int = 512
    vocab: int = 2048


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """`device` is "emulated" or "cuda:N". `text` is compiled in place of the kernel's source.

    `arch` None leaves out the compiler of CUDA. `label` picks a specialisation (see `matches`); cases that do not use
    it are left out. `sanitize` runs the cases once more under the address and the thread sanitizer. `sizes` are checked
    after the usual ones; `also` lists specialisations that engines run: (defines, threads, shared_bytes) each. One that
    no case runs ends the check.
    """

    kernel: str
    text: str
    device: str = EMULATED
    arch: str | None = None
    label: str | None = None
    sanitize: bool = False
    sizes: tuple[ModelSizes, ...] = ()
    also: Also = ()

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> CheckRequest:
        """From `to_dict`, through JSON or not."""
        also = tuple(
            (tuple((str(name), str(value)) for name, value in defines), int(threads), int(shared))
            for defines, threads, shared in data["also"]
        )
        return cls(**{**data, "sizes": tuple(ModelSizes(**each) for each in data["sizes"]), "also": also})


def matches(wanted: str | None, label: str) -> bool:
    """Whether a specialisation's label is the wanted one: the same, or with all of the wanted macros ("WIDTH=8")."""
    if wanted is None or wanted == label:
        return True
    macros = label.partition("[")[2].removesuffix("]").split()
    asked = wanted.replace(",", " ").split()
    return bool(asked) and all(each in macros for each in asked)
