"""One case on one launcher: run, held beside the reference, looked at for stray reads and writes, timed."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from yaie_cuda import ops
from yaie_cuda.dry_run import DryRun
from yaie_cuda.kernel import Launcher, Specialisation

from .case import Case, Inventor
from .compare import compare
from .guarded import Guarded
from .result import Difference

EMULATED_RUNS, DEVICE_RUNS, DEVICE_REPLAYS = 3, 50, 6


def kernel_function(op: str) -> Callable[..., None]:
    """`<op>_kernel` of the family that defines it: takes a launcher, then the op's arguments."""
    for family in ops.FAMILIES:
        if found := getattr(family, f"{op}_kernel", None):
            return found  # type: ignore[no-any-return]
    raise LookupError(f"no family defines {op}_kernel")


class Trial:
    """A case made ready: arguments between margins on `device`, the reference's results beside them.

    Another `seed` invents other values.
    """

    def __init__(self, case: Case, device: torch.device, seed: int = 0) -> None:
        self.case, self.device = case, device
        op = getattr(torch.ops.yaie, case.op).default
        given = case.make(Inventor(seed))
        self._guards: dict[str, Guarded] = {}
        self._writes: set[str] = set()
        self._arguments: list[Any] = []
        for slot, value in zip(op._schema.arguments, given, strict=True):
            self._arguments.append(self._place(slot.name, value))
            if slot.alias_info is not None and slot.alias_info.is_write:
                self._writes |= {name for name, _ in _tensors(slot.name, value)}
        op(*given)  # the reference, on the CPU
        self._expected = {
            name: tensor
            for slot, value in zip(op._schema.arguments, given, strict=True)
            for name, tensor in _tensors(slot.name, value)
        }
        self._run = kernel_function(case.op)

    def launches(self, launcher: Launcher) -> tuple[Specialisation, ...]:
        """What the case would launch, without doing it, each once."""
        dry = DryRun(launcher)
        self._run(dry, *self._arguments)
        return tuple(dry.specialisations)

    def run(self, launcher: Launcher) -> None:
        """Call the op through `launcher` and wait for its end."""
        self._run(launcher, *self._arguments)
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """What the kernel may touch."""
        return tuple(guard.tensor for guard in self._guards.values())

    def outcome(self) -> tuple[tuple[Difference, ...], str]:
        """After the first run: what was written beside the reference, and what else was touched, in words, or ""."""
        strays = [text for name, guard in self._guards.items() if (text := self._stray(name, guard))]
        differences = tuple(
            compare(name, self._guards[name].tensor, self._expected[name], self.case.tolerance)
            for name in self._guards
            if name in self._writes
        )
        return differences, strays[0] if strays else ""

    def milliseconds(self, launcher: Launcher) -> float:
        """Median time of a run; on a GPU of many without the host, by its own clock."""
        if self.device.type == "cuda":
            return self._device_milliseconds(launcher)
        seconds = []
        for _ in range(EMULATED_RUNS):
            start = time.perf_counter()
            self.run(launcher)
            seconds.append(time.perf_counter() - start)
        return statistics.median(seconds) * 1000

    def _device_milliseconds(self, launcher: Launcher) -> float:
        """By a graph of many runs, so that the host has no part in it: one small launch takes it longer than a GPU."""
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream(self.device)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.cuda.stream(stream):
            self._run(launcher, *self._arguments)  # what is made at a first call is not captured
        stream.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(DEVICE_RUNS):
                self._run(launcher, *self._arguments)
        seconds = []
        for _ in range(DEVICE_REPLAYS):
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            seconds.append(float(begin.elapsed_time(end)) / DEVICE_RUNS)
        return statistics.median(seconds[1:])

    def _place(self, name: str, value: Any) -> Any:
        """The argument as the kernel gets it: tensors between margins on the device, the rest as it is."""
        if isinstance(value, Tensor):
            self._guards[name] = guard = Guarded.like(value, self.device)
            return guard.tensor
        if isinstance(value, list):
            return [self._place(f"{name}[{index}]", each) for index, each in enumerate(value)]
        return value

    def _stray(self, name: str, guard: Guarded) -> str:
        if (beside := guard.written_beside()) is not None:
            elements = guard.tensor.numel()
            first = beside // guard.tensor.element_size() + (elements if beside >= 0 else 0)
            return f"it writes outside of {name}, which has {elements:,} elements: first to number {first:,} (from 0)"
        if name not in self._writes:
            found = compare(name, guard.tensor, self._expected[name], 0.0)
            if not found.ok:
                return f"it writes to {name}{list(found.index or ())}, which is an input"
        return ""


def _tensors(name: str, value: Any) -> Iterator[tuple[str, Tensor]]:
    """The tensors of an argument, by the name of their place."""
    if isinstance(value, Tensor):
        yield name, value
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for index, each in enumerate(value):
            yield from _tensors(f"{name}[{index}]", each)
