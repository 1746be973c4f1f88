"""How an op comes to be: its schema, its reference on the CPU, its kernel on CUDA, its fake version for tracing."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch

from . import device
from .checks import UnservedError

LIBRARY = torch.library.Library("yaie", "DEF")


class MissingKernelWarning(UserWarning):
    """A CUDA tensor is worked on by the torch reference, because there is no kernel for it."""


def writes_only(*_: Any) -> None:
    """Fake version of ops that only write to their arguments."""


def define(
    signature: str,
    *,
    reference: Callable[..., None],
    kernel: Callable[..., None] | None = None,
    fake: Callable[..., Any] = writes_only,
) -> None:
    """Register op `signature` ("name(...) -> ()") in namespace `yaie`.

    `reference` takes the op's arguments; `kernel` takes a Launcher and then the same. Before it launches anything it
    raises ValueError for arguments that are wrong, and UnservedError for those that no kernel takes: these the
    reference serves on CUDA, with one `MissingKernelWarning` per reason.
    """
    LIBRARY.define(signature)
    name = signature.partition("(")[0]
    LIBRARY.impl(name, reference, "CPU")
    LIBRARY.impl(name, reference if kernel is None else _on_cuda(name, reference, kernel), "CUDA")
    torch.library.register_fake(f"yaie::{name}", fake, lib=LIBRARY)


def _on_cuda(name: str, reference: Callable[..., None], kernel: Callable[..., None]) -> Callable[..., None]:
    """The CUDA version of an op: the kernel where there is one, else the reference."""
    warned: set[str] = set()

    def run(*arguments: Any) -> None:
        index = _device_index(arguments)
        reason = device.unusable_reason(index)
        if not reason:
            try:
                kernel(device.launcher(index), *arguments)
                return
            except UnservedError as error:
                reason = str(error)
        if reason not in warned:
            warned.add(reason)
            warnings.warn(f"{name}: the torch reference runs: {reason}", MissingKernelWarning, stacklevel=2)
        reference(*arguments)

    return run


def _device_index(arguments: tuple[Any, ...]) -> int:
    """The device of the first CUDA tensor among `arguments`, also inside a list of tensors."""
    for argument in arguments:
        for one in argument if isinstance(argument, list | tuple) else (argument,):
            if isinstance(one, torch.Tensor) and one.is_cuda:
                return one.get_device()
    raise ValueError("no argument lies on a CUDA device")
