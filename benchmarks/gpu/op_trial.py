"""One case of an op on the device: beside its reference in float64, and replayed from a graph on other contents."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from yaie_cuda.lab.case import Case, Inventor
from yaie_cuda.lab.guarded import Guarded
from yaie_cuda.lab.trial import kernel_function

from .bench import Bench

# Root mean square of the difference over that of the reference in float64. Log-sum-exps are float32 sums.
MOST_ERROR = {torch.bfloat16: 4e-3, torch.float16: 1e-3, torch.float32: 1e-4}


def tensors_of(name: str, value: Any) -> Iterator[tuple[str, Tensor]]:
    """The tensors of an argument, by the name of their place."""
    if isinstance(value, Tensor):
        yield name, value
    elif isinstance(value, list | tuple):
        for index, each in enumerate(value):
            yield from tensors_of(f"{name}[{index}]", each)


def widened(value: Any) -> Any:
    """The argument with its floating-point numbers in float64."""
    if isinstance(value, Tensor):
        return value.double() if value.dtype.is_floating_point else value.clone()
    if isinstance(value, list | tuple):
        return [widened(each) for each in value]
    return value


def copied(value: Any) -> Any:
    """The argument with tensors of its own."""
    if isinstance(value, Tensor):
        return value.clone()
    return [copied(each) for each in value] if isinstance(value, list | tuple) else value


def relative_error(ours: Tensor, right: Tensor) -> float:
    """Root mean square of the difference over that of `right`; infinite where only one side is NaN or infinite."""
    ours, right = ours.double().cpu(), right.double().cpu()
    same = (ours == right) | (ours.isnan() & right.isnan())
    gap = torch.where(same, 0.0, ours - right)
    if not gap.isfinite().all():
        return float("inf")
    size = torch.where(right.isfinite(), right, 0.0).square().mean().sqrt() if right.numel() else torch.ones(())
    return float(gap.square().mean().sqrt() / size.clamp_min(1e-30)) if gap.numel() else 0.0


class OpTrial:
    """The arguments of a case between margins on the device. Contents 0 are the case's own; 1 have the same shapes."""

    def __init__(self, case: Case, bench: Bench) -> None:
        self.case, self.bench = case, bench
        op = getattr(torch.ops.yaie, case.op).default
        self._op, self._slots = op, op._schema.arguments
        self._given = [case.make(Inventor(seed)) for seed in (0, 1)]
        self._writes: set[str] = set()
        self._guards: dict[str, Guarded] = {}
        for slot, value in zip(self._slots, self._given[0], strict=True):
            if slot.alias_info is not None and slot.alias_info.is_write:
                self._writes |= {name for name, _ in tensors_of(slot.name, value)}
        self._arguments = [
            self._place(slot.name, value) for slot, value in zip(self._slots, self._given[0], strict=True)
        ]
        self._run = kernel_function(case.op)

    def fill(self, contents: int) -> None:
        """Put contents 0 or 1 into the arguments, results included."""
        for slot, value in zip(self._slots, self._given[contents], strict=True):
            for name, tensor in tensors_of(slot.name, value):
                self._guards[name].tensor.copy_(tensor)

    def call(self) -> None:
        """The op through its kernel."""
        self._run(self.bench.launcher, *self._arguments)

    def results(self) -> dict[str, Tensor]:
        """What the op wrote, on the CPU."""
        self.bench.wait()
        return {name: self._guards[name].tensor.cpu() for name in self._guards if name in self._writes}

    def expected(self, contents: int) -> dict[str, Tensor]:
        """What the reference makes of contents: in float64, where the case allows for rounding."""
        given: Sequence[Any] = self._given[contents]
        arguments = [widened(value) if self.case.tolerance else copied(value) for value in given]
        self._op(*arguments)
        found: dict[str, Tensor] = {}
        for slot, value in zip(self._slots, arguments, strict=True):
            found.update((name, tensor) for name, tensor in tensors_of(slot.name, value) if name in self._writes)
        return found

    def wrong(self, contents: int) -> tuple[str, float]:
        """What is wrong with the results of contents, "" when nothing is; and the largest error over its bound."""
        ours, right, worst = self.results(), self.expected(contents), 0.0
        for name, tensor in right.items():
            if not self.case.tolerance:
                if not torch.equal(_bits(ours[name]), _bits(tensor)):
                    return f"{name} differs from the reference", float("inf")
                continue
            error, bound = relative_error(ours[name], tensor), MOST_ERROR[ours[name].dtype]
            worst = max(worst, error / bound)
            if not error <= bound:
                return f"{name} is off by {error:.1e} of its size, {bound:.0e} is allowed", worst
        for name, guard in self._guards.items():
            if guard.written_beside() is not None:
                return f"it writes beside {name}", float("inf")
        return "", worst

    def _place(self, name: str, value: Any) -> Any:
        if isinstance(value, Tensor):
            self._guards[name] = guard = Guarded.like(value, self.bench.device)
            return guard.tensor
        if isinstance(value, list | tuple):
            return [self._place(f"{name}[{index}]", each) for index, each in enumerate(value)]
        return value


def try_case(case: Case, bench: Bench) -> tuple[str, float]:
    """Run `case` plainly and from a graph; what is wrong, "" when nothing is, and the largest error over its bound."""
    trial = OpTrial(case, bench)
    trial.call()
    wrong, error = trial.wrong(0)
    if wrong:
        return wrong, error
    plain = trial.results()
    trial.fill(0)
    replay = bench.capture(trial.call)
    trial.fill(0)
    replay()
    again = trial.results()
    changed = [name for name, tensor in plain.items() if not torch.equal(_bits(tensor), _bits(again[name]))]
    if changed:
        return f"replayed from a graph, {changed[0]} has other bits", float("inf")
    trial.fill(1)
    replay()
    wrong, other = trial.wrong(1)
    return (f"replayed on other contents: {wrong}" if wrong else ""), max(error, other)


def _bits(tensor: Tensor) -> Tensor:
    """The tensor as bytes, so that NaN equals itself."""
    with contextlib.suppress(RuntimeError):
        return tensor.contiguous().view(torch.uint8)
    return tensor
