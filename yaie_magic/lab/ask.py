"""From a cell and the engine it is for to a request for a check."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from yaie_cuda.lab.request import EMULATED, CheckRequest
from yaie_magic.options import UsageProblem
from yaie_magic.session import LoadedEngine

from .engines import device_of, sizes_in_use, specialisations_in_use
from .listing import own_arch


def request_for(name: str, body: str, given: Mapping[str, Any], engine: LoadedEngine | None) -> CheckRequest:
    """Check on the engine's device and with the sizes of all engines, or without an engine on the GPU if there is one.

    Imports torch. Raises UsageProblem where the sanitizers were asked for and a GPU is to be used.
    """
    sanitize = given.get("sanitize", False)
    device = device_of(engine) if engine else EMULATED if sanitize else own_device()
    if sanitize and device != EMULATED:
        raise UsageProblem(
            "--sanitize works on the emulator, --use is for an engine on the GPU: do one after the other"
        )
    return CheckRequest(
        kernel=name,
        text=body if body.endswith("\n") else f"{body}\n",
        device=device,
        arch=given.get("arch") or own_arch(),
        label=given.get("spec"),
        sanitize=sanitize,
        sizes=sizes_in_use() if engine else (),
        also=specialisations_in_use(name) if engine else (),
    )


def own_device() -> str:
    """The first GPU if kernels can run on it, else the emulator."""
    from yaie_cuda.device import has_driver, unusable_reason

    return "cuda:0" if has_driver() and not unusable_reason() else EMULATED
