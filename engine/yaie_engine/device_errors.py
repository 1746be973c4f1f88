"""Errors of a device: those that a smaller step gets round, and those after which nothing works any more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import torch

from yaie_cuda.errors import EmulatorError

from .errors import DeviceMemoryError, EngineDeadError
from .memory import all_memory, free_memory, gib
from .plan import StepPlan

T = TypeVar("T")
LOST = (
    "an illegal memory access", "misaligned address", "device-side assert triggered", "unspecified launch failure",
    "an illegal instruction", "hardware stack error", "invalid program counter", "launch timed out",
    "operation not supported on global/shared address space", "uncorrectable ecc error", "uncorrectable nvlink error",
    "context is destroyed", "cuda_error_illegal_address", "cuda_error_misaligned_address", "cuda_error_assert",
    "cuda_error_launch_failed", "cuda_error_illegal_instruction", "cuda_error_hardware_stack_error",
    "cuda_error_invalid_pc", "cuda_error_launch_timeout", "cuda_error_invalid_address_space",
    "cuda_error_ecc_uncorrectable", "cuda_error_nvlink_uncorrectable", "cuda_error_context_is_destroyed",
)  # fmt: skip
"""What CUDA's runtime and driver call the errors that every later call of the process repeats."""

_ON_CPU = "DefaultCPUAllocator"


def within_memory(run: Callable[[], T], plan: StepPlan, device: torch.device) -> T:
    """What `run` gives, which is a part of the step `plan` on `device`.

    Raises:
        DeviceMemoryError: it did not fit into memory; a smaller step may.
    """
    try:
        return run()
    except (RuntimeError, MemoryError) as error:
        if not out_of_memory(error):
            raise
        reason = first_sentence(error)
    # Outside of the handler: the error's frames would keep the step's tensors alive.
    if device.type == "cuda":
        torch.cuda.empty_cache()
    raise DeviceMemoryError(
        f"step {plan.step} with {plan.num_tokens} tokens of {len(plan.batch)} sequences ran out of memory: "
        f"{gib(free_memory(device))} of {gib(all_memory(device))} are free on {device} ({reason}); "
        f"lower max_num_batched_tokens or {'gpu' if device.type == 'cuda' else 'cpu'}_memory_utilization"
    )


def out_of_memory(error: BaseException) -> bool:
    """Whether `error` says that memory ended: a GPU's, or a CPU's, of which torch says so in a plain RuntimeError."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and _ON_CPU in str(error)


def first_sentence(error: BaseException) -> str:
    """The beginning of an allocator's text, which goes on for a paragraph."""
    text = str(error)
    return text[max(0, text.find(_ON_CPU)) :].partition(".")[0] or type(error).__name__


def lost(error: BaseException) -> EngineDeadError | None:
    """The end of an engine whose device was lost by `error`; None for an error that the device survives."""
    for one in _chain(error):
        if isinstance(one, EmulatorError):
            continue  # no device had a part in it
        text = str(one)
        if any(words in text.lower() for words in LOST) or (_of_accelerator(one) and _repeats()):
            why = (text.splitlines() or [""])[0][:200]
            return EngineDeadError(
                f"the GPU was lost ({type(one).__name__}: {why}): nothing in this process can use it any more; "
                "restart the kernel, or the process outside of a notebook, and load the model again"
            )
    return None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error and what it came from."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _of_accelerator(error: BaseException) -> bool:
    """Whether torch heard of `error` from the device; older versions raise a plain RuntimeError."""
    kind = getattr(torch, "AcceleratorError", None)
    return kind is not None and isinstance(error, kind) and not isinstance(error, torch.OutOfMemoryError)


def _repeats() -> bool:
    """Whether the device answers everything with an error by now."""
    if not torch.cuda.is_initialized():
        return False
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return True
    return False
