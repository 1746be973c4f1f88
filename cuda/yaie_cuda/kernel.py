"""What a kernel is: one source, one entry point, one parameter struct; and a specialisation of it by macros."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from .launch_cache import LaunchCache

SOURCES = Path(__file__).parent / "kernels"
CODES: Mapping[str, type[Any]] = {
    "p": ctypes.c_void_p,
    "q": ctypes.c_int64,
    "i": ctypes.c_int32,
    "f": ctypes.c_float,
}


@dataclass(frozen=True)
class Kernel:
    """An entry point `name` in kernels/<name>.cu, which takes one struct.

    `fields` are (name, code) in the order of the struct; codes are "p" pointer, "q" int64, "i" int32, "f" float32.
    Raises ValueError where the C++ compiler would put padding between or after the fields.
    """

    name: str
    fields: tuple[tuple[str, str], ...]

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise ValueError(f"kernel name {self.name!r} is not an identifier")
        for name, code in self.fields:
            if not name.isidentifier() or code not in CODES:
                raise ValueError(f"{self.name}: field {name!r} of code {code!r}; codes are {', '.join(CODES)}")
        plain = sum(ctypes.sizeof(CODES[code]) for _, code in self.fields)
        if plain != ctypes.sizeof(self.params):
            raise ValueError(f"{self.name}: the struct has padding; put 8-byte fields first and pair the 4-byte ones")

    @cached_property
    def params(self) -> type[ctypes.Structure]:
        """The struct as a ctypes class: `params(**fields)` makes one; fields left out are 0, unknown ones an error."""
        fields = [(name, CODES[code]) for name, code in self.fields]
        # Without slots a Structure takes any attribute, and a misspelt field would be lost in silence.
        return type(f"{self.name}_params", (ctypes.Structure,), {"__slots__": (), "_fields_": fields})

    @property
    def path(self) -> Path:
        """The source file."""
        return SOURCES / f"{self.name}.cu"

    def specialise(self, threads: int, shared_bytes: int = 0, **defines: object) -> Specialisation:
        """The specialisation with these macros, in the order of their names."""
        return Specialisation(self, tuple(sorted((k, str(v)) for k, v in defines.items())), threads, shared_bytes)


@dataclass(frozen=True)
class Specialisation:
    """A kernel with its macros fixed; what is compiled, cached and launched.

    `defines` are (name, value), sorted, without THREADS and PARAMS_BYTES; `threads` is the block size in x;
    `shared_bytes` the dynamic shared memory of one block.
    """

    kernel: Kernel
    defines: tuple[tuple[str, str], ...]
    threads: int
    shared_bytes: int = 0
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.defines != tuple(sorted(self.defines)):
            raise ValueError(f"{self.kernel.name}: defines must be sorted by name, got {self.defines}")
        if not 0 < self.threads <= 1024:
            raise ValueError(f"{self.kernel.name}: {self.threads} threads; 1 to 1024 are allowed")
        # Looked up at every launch: nested tuples are hashed once.
        key = (self.kernel.name, self.defines, self.threads, self.shared_bytes)
        object.__setattr__(self, "_hash", hash(key))

    def __hash__(self) -> int:
        return self._hash

    @property
    def macros(self) -> tuple[tuple[str, str], ...]:
        """All macros that the source is compiled with."""
        size = ctypes.sizeof(self.kernel.params)
        return (*self.defines, ("PARAMS_BYTES", str(size)), ("THREADS", str(self.threads)))

    @property
    def label(self) -> str:
        """For people: `paged_attention_decode[BLOCK_SIZE=16 HEAD_DIM=128 SCALAR=bfloat16]`."""
        inside = " ".join(f"{name}={value}" for name, value in self.defines)
        return f"{self.kernel.name}[{inside}]" if inside else self.kernel.name


Progress = Callable[[int, int], None]


class Launcher(Protocol):
    """What runs kernels: a device, or the emulator on the CPU."""

    @property
    def name(self) -> str:
        """ "cuda:0" or "emulated"."""

    @property
    def multiprocessors(self) -> int:
        """How many blocks run at once, at one block each."""

    @property
    def max_shared_bytes(self) -> int:
        """The most dynamic shared memory of one block, in bytes."""

    @property
    def prepared(self) -> LaunchCache:
        """What calls of ops were prepared for this launcher."""

    def launch(self, specialisation: Specialisation, grid: tuple[int, int, int], params: ctypes.Structure) -> None:
        """Start `grid` blocks with `params`; on a device in the order of torch's current stream."""

    def workspace(self, name: str, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
        """A buffer that launches reuse; its content is undefined. It never grows while a CUDA graph is captured."""

    def warm_up(self, specialisations: Iterable[Specialisation], progress: Progress | None = None) -> None:
        """Compile these, several at a time, and make them ready; `progress` hears (done, all)."""
