"""The library of CPU kernels as Python functions over addresses."""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass
from typing import Any

import torch

from .build import build

_POINTER, _INT, _FLOAT, _COUNT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float, ctypes.c_int
_CODES = {"p": _POINTER, "q": _INT, "f": _FLOAT, "i": _COUNT}
SIGNATURES = {
    "rms_norm": "pqpfpqpqqqi",
    "rms_norm_wide": "pqpfpqpqqqi",
    "rms_norm_one_plus": "pqpfpqpqqqi",
    "silu_and_mul": "pqpqqqi",
    "gelu_tanh_and_mul": "pqpqqqi",
    "best_of": "pqppqqi",
    "rotary": "pqqqpqqqqppiqpqqi",
    "write_cache": "pqqqpqqqqpqpqqpqi",
    "attend": "pqpqpqqpqpffqpipqqqqqi",
    "attend_chunks": "pqpqpqqpqppffqpipqqqqqi",
    "linear": "pqpppqqqqi",
    "linear_int8": "pqppppqqqqi",
}
DTYPES = {torch.float32: "float32", torch.bfloat16: "bfloat16"}
LONG = 2**23
"""Multiplications above which a call lets other Python threads run meanwhile. A shorter one keeps them waiting for less
than a millisecond; to let go of the interpreter and get it back may take five, where another thread is busy."""


@dataclass(frozen=True, slots=True)
class Function:
    """One kernel for one dtype: `holding` keeps the interpreter for itself, `free` lets others run.

    `recorded` is the address of the function that takes the same arguments from slots, whose kinds are `codes`. Each
    gives 0, or what `check` raises for.
    """

    holding: Any
    free: Any
    recorded: int
    codes: str

    def of(self, work: int) -> Any:
        """The one to call for `work` multiplications."""
        return self.free if work > LONG else self.holding


@dataclass(frozen=True, slots=True)
class Library:
    """`functions[name, dtype]`; `products`: the dtypes for which `linear` beats torch's product on this machine.

    `replay` runs so many recorded calls from an address on.
    """

    functions: dict[tuple[str, torch.dtype], Function]
    products: frozenset[torch.dtype]
    replay: Any


def check(status: int) -> None:
    """Raise MemoryError where a kernel says that it found no memory to work in; what it has written is of no use."""
    if status:
        raise MemoryError("a CPU kernel found no memory to work in")


@functools.cache
def library() -> Library:
    """The library, built when it is first asked for. Raises as `build`; OSError where it cannot be loaded."""
    path = str(build())
    free, holding = ctypes.CDLL(path), ctypes.PyDLL(path)
    functions = {}
    for name, codes in SIGNATURES.items():
        for dtype, suffix in DTYPES.items():
            quick, long = (getattr(loaded, f"{name}_{suffix}") for loaded in (holding, free))
            for one in (quick, long):
                one.argtypes, one.restype = [_CODES[code] for code in codes], _COUNT
            recorded = ctypes.cast(getattr(holding, f"recorded_{name}_{suffix}"), ctypes.c_void_p).value
            functions[name, dtype] = Function(quick, long, recorded or 0, codes)
    bits = int(holding.products())
    products = {dtype for bit, dtype in enumerate(DTYPES) if bits >> bit & 1}
    free.replay.argtypes, free.replay.restype = [_POINTER, _INT], _COUNT
    return Library(functions, frozenset(products), free.replay)
