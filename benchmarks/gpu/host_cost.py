"""What a call of an op costs the host before the driver, measured without a GPU on a launcher that launches nothing."""

from __future__ import annotations

import contextlib
import ctypes
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any
from unittest import mock

import torch
from torch import Tensor

import yaie_cuda.ops  # noqa: F401 - defines torch.ops.yaie
from yaie_cuda import device, library
from yaie_cuda.kernel import Specialisation
from yaie_cuda.lab.case import Case, Inventor
from yaie_cuda.lab.cases import BUILDERS
from yaie_cuda.lab.request import ModelSizes
from yaie_cuda.lab.trial import kernel_function
from yaie_cuda.launch_cache import LaunchCache
from yaie_cuda.workspace import Workspace

from .cascade_cases import cascade

SIZES = ModelSizes(num_heads=32, num_kv_heads=8, head_dim=128, hidden=4096, intermediate=14_336)
TABLE_BLOCKS = 256  # contexts of up to 4096 tokens: keys are split, and parts need room
CALLS, SAMPLES = 40, 201  # short samples: most of them are not interrupted


class Idle:
    """A launcher as large as an H200 that does nothing."""

    name = "idle"
    multiprocessors = 132
    max_shared_bytes = 232_448

    def __init__(self) -> None:
        self.prepared = LaunchCache()
        self.workspace = Workspace().take

    def launch(self, specialisation: Specialisation, grid: tuple[int, int, int], params: ctypes.Structure) -> None:
        """Nothing."""


def cases() -> Iterator[Case]:
    """The first case of each op."""
    seen: set[str] = set()
    for builder in dict.fromkeys((*chain.from_iterable(BUILDERS.values()), cascade)):
        case = next(iter(builder(SIZES)))
        if case.op not in seen:
            seen.add(case.op)
            yield case


def arguments_of(case: Case) -> list[Any]:
    """The case's arguments, with block tables for long contexts."""
    slots = getattr(torch.ops.yaie, case.op).default._schema.arguments
    given = dict(zip((slot.name for slot in slots), case.make(Inventor()), strict=True))
    tables = given.get("block_tables")
    if isinstance(tables, Tensor):
        given["block_tables"] = torch.zeros(len(tables), TABLE_BLOCKS, dtype=torch.int32)
    return list(given.values())


@contextlib.contextmanager
def through_torch(op: str, launcher: Idle) -> Iterator[Callable[..., None]]:
    """What torch.ops does on CUDA tensors, registered for those of the CPU."""
    schema = getattr(torch.ops.yaie, op).default._schema
    with (
        torch.library._scoped_library("yaie_host_cost", "FRAGMENT") as scratch,
        mock.patch.object(library, "_device_index", lambda _: 0),
        mock.patch.object(device, "unusable_reason", lambda _: ""),
        mock.patch.object(device, "launcher", lambda _: launcher),
    ):
        scratch.define(str(schema).partition("::")[2])
        scratch.impl(op, library._on_cuda(op, _never, kernel_function(op)), "CPU")
        yield getattr(torch.ops.yaie_host_cost, op)


def _never(*_: Any) -> None:
    raise AssertionError("there is a kernel for every case")


def microseconds(call: Callable[[], object], calls: int, samples: int) -> float:
    """The median over samples of one call's time."""
    times = []
    for _ in range(samples):
        start = time.perf_counter()
        for _ in range(calls):
            call()
        times.append((time.perf_counter() - start) / calls)
    return statistics.median(times) * 1e6


def costs(case: Case, calls: int, samples: int) -> Sequence[float]:
    """Microseconds of a call of the kernel, of one unlike all before, and of one through torch."""
    launcher, arguments = Idle(), arguments_of(case)
    kernel = kernel_function(case.op)

    def first() -> None:
        launcher.prepared = LaunchCache()
        kernel(launcher, *arguments)

    first_time = microseconds(first, calls, samples)
    again = microseconds(lambda: kernel(launcher, *arguments), calls, samples)
    with through_torch(case.op, launcher) as op:
        return again, microseconds(lambda: op(*arguments), calls, samples), first_time


def main(calls: int = CALLS, samples: int = SAMPLES) -> int:
    """Print one line per op."""
    print(f"{'microseconds a call':<36}{'kernel':>8}{'torch':>8}{'first':>8}")
    with torch.inference_mode():
        for case in cases():
            print(f"{case.op:<36}" + "".join(f"{cost:8.1f}" for cost in costs(case, calls, samples)), flush=True)
    return 0
