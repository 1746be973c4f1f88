"""GPUs: whether one can be used, and the one launcher of each."""

from __future__ import annotations

import ctypes
import functools
import sys

import torch

from .compiler import compiler_reason
from .device_launcher import DeviceLauncher
from .driver import Driver

LEAST_CAPABILITY = (8, 0)
DRIVER = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"


@functools.cache
def has_driver() -> bool:
    """Whether NVIDIA's driver library can be loaded. Nothing but this may touch the driver unless it is true.

    Without a driver some calls of cuda.core do not fail but hang, so that the library is looked for first. It is asked
    for by the name that drivers install: cuda-pathfinder before 1.4.2 looks for the one that only SDKs bring.
    """
    try:
        ctypes.CDLL(DRIVER)
    except OSError:
        return False
    return True


@functools.cache
def unusable_reason(index: int = 0) -> str:
    """Why GPU `index` cannot run our kernels, in one line; "" when it can."""
    if not torch.backends.cuda.is_built():
        return f"this PyTorch ({torch.__version__}) is built without CUDA"
    compiler = compiler_reason()
    if compiler:
        return compiler
    if not has_driver():
        return "there is no NVIDIA driver on this machine"
    count = torch.cuda.device_count()
    if index >= count:
        return "there is no NVIDIA GPU" if count == 0 else f"there is no GPU {index}, only {count}"
    major, minor = torch.cuda.get_device_capability(index)
    if (major, minor) < LEAST_CAPABILITY:
        name = torch.cuda.get_device_name(index)
        return f"{name} has compute capability {major}.{minor}; the kernels need 8.0 or later"
    return ""


@functools.cache
def launcher(index: int = 0) -> DeviceLauncher:
    """The launcher of GPU `index`. Raises RuntimeError where it cannot be used."""
    reason = unusable_reason(index)
    if reason:
        raise RuntimeError(f"GPU {index} cannot run kernels: {reason}")
    from cuda.bindings import driver

    torch.cuda.init()
    stream = torch._C._cuda_getCurrentRawStream
    return DeviceLauncher(index, Driver(index, driver), stream, torch.cuda.is_current_stream_capturing)
