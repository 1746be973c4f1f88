"""What an op runs on CUDA: its kernel, or the reference with one warning per reason. There is no GPU here."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from yaie_cuda import device, library
from yaie_cuda.checks import refuse
from yaie_cuda.library import MissingKernelWarning


class Calls:
    """A reference and a kernel that write down how they are called."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[tuple[Any, ...]] = []
        self.unusable, self.unsupported = "", ""
        monkeypatch.setattr(library, "_device_index", lambda arguments: 3)
        monkeypatch.setattr(device, "unusable_reason", lambda index: self.unusable)
        monkeypatch.setattr(device, "launcher", lambda index: f"launcher {index}")

    def _kernel(self, *arguments: Any) -> None:
        refuse(self.unsupported)
        self.made.append(("kernel", *arguments))

    def op(self) -> Any:
        """The op's function for CUDA tensors."""
        return library._on_cuda(
            "op",
            lambda *arguments: self.made.append(("reference", *arguments)),
            self._kernel,
        )


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    return Calls(monkeypatch)


def test_the_kernel_runs_on_the_launcher_of_its_device(calls: Calls) -> None:
    calls.op()(1, 2)
    assert calls.made == [("kernel", "launcher 3", 1, 2)]


@pytest.mark.parametrize("what", ["unusable", "unsupported"])
def test_the_reference_runs_with_one_warning_per_reason(calls: Calls, what: str) -> None:
    op = calls.op()
    for reason in ("too old", "head size 7"):
        setattr(calls, what, reason)
        with pytest.warns(MissingKernelWarning, match=f"op: the torch reference runs: {reason}"):
            op(1)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            op(1)
    assert calls.made == [("reference", 1)] * 4


def test_arguments_that_are_wrong_are_an_error(calls: Calls) -> None:
    def kernel(*arguments: Any) -> None:
        raise ValueError("lens have the wrong shape")

    op = library._on_cuda("op", lambda *arguments: None, kernel)
    with pytest.raises(ValueError, match="lens have the wrong shape"):
        op(1)
