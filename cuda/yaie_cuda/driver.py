"""The CUDA driver through cuda.bindings, with errors as exceptions. Needs a driver: see `device.has_driver`."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from .errors import KernelLaunchError


@dataclass(frozen=True, slots=True)
class DeviceLimits:
    """What a GPU has. `max_shared_bytes` is the most of one block, on request; `l2_bytes` its last cache."""

    capability: tuple[int, int]
    multiprocessors: int
    max_shared_bytes: int
    shared_bytes_per_multiprocessor: int
    threads_per_multiprocessor: int
    registers_per_multiprocessor: int
    l2_bytes: int


@dataclass(slots=True)
class Function:
    """A loaded kernel. `static_bytes` of shared memory are its own; `shared_limit` is the most dynamic shared memory
    that it was allowed so far, in bytes. A GPU's limits are on their sum.
    """

    handle: Any
    static_bytes: int
    shared_limit: int = 0


class Driver:
    """The calls that a launcher makes, on the primary context of one GPU, which is the one that PyTorch uses.

    `api` is the module cuda.bindings.driver. Raises KernelLaunchError, which names the call, what it was for, and the
    driver's own words.
    """

    def __init__(self, index: int, api: Any) -> None:
        self._api = api
        self._success = api.CUresult.CUDA_SUCCESS
        self._check("cuInit", api.cuInit(0), f"GPU {index}")
        self._device = self._check("cuDeviceGet", api.cuDeviceGet(index), f"GPU {index}")
        retained = api.cuDevicePrimaryCtxRetain(self._device)
        self._context = self._check("cuDevicePrimaryCtxRetain", retained, f"GPU {index}")
        self._context_number = int(self._context)

    def _check(self, call: str, result: tuple[Any, ...], what: str) -> Any:
        """The value of a call, or the error that it returned."""
        status = result[0]
        if status != self._success:
            _, name = self._api.cuGetErrorName(status)
            _, words = self._api.cuGetErrorString(status)
            raise KernelLaunchError(f"{what}: {call} failed: {_text(name) or status}: {_text(words)}")
        return result[1] if len(result) > 1 else None

    def limits(self) -> DeviceLimits:
        """What the GPU has."""

        def read(name: str) -> int:
            attribute = getattr(self._api.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
            return int(
                self._check("cuDeviceGetAttribute", self._api.cuDeviceGetAttribute(attribute, self._device), name)
            )

        return DeviceLimits(
            (read("COMPUTE_CAPABILITY_MAJOR"), read("COMPUTE_CAPABILITY_MINOR")),
            read("MULTIPROCESSOR_COUNT"),
            read("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
            read("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"),
            read("MAX_THREADS_PER_MULTIPROCESSOR"),
            read("MAX_REGISTERS_PER_MULTIPROCESSOR"),
            read("L2_CACHE_SIZE"),
        )

    def load(self, cubin: bytes, name: str, label: str) -> Function:
        """Load a cubin and find its entry point. The module stays loaded: CUDA graphs may hold its functions."""
        with self._entered(label):
            module = self._check("cuModuleLoadData", self._api.cuModuleLoadData(cubin), label)
            handle = self._check("cuModuleGetFunction", self._api.cuModuleGetFunction(module, name.encode()), label)
            # The driver loads a function when it is first used; asked for an attribute, it does so now.
            static = self._api.CUfunction_attribute.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES
            size = self._check("cuFuncGetAttribute", self._api.cuFuncGetAttribute(static, handle), label)
        return Function(handle, int(size))

    def allow_shared(self, function: Function, shared_bytes: int, label: str) -> None:
        """Let `function` use that much dynamic shared memory; never less than before, which would break others."""
        if shared_bytes <= function.shared_limit:
            return
        attribute = self._api.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        with self._entered(label):
            result = self._api.cuFuncSetAttribute(function.handle, attribute, shared_bytes)
            self._check("cuFuncSetAttribute", result, label)
        function.shared_limit = shared_bytes

    def launch(
        self,
        function: Function,
        grid: tuple[int, int, int],
        threads: int,
        shared_bytes: int,
        stream: int,
        params: ctypes.Structure,
        label: str,
    ) -> None:
        """Start a kernel. The driver copies `params` before it returns."""
        api = self._api
        argument = ctypes.c_void_p(ctypes.addressof(params))
        sizes = (*grid, threads, 1, 1, shared_bytes)
        status, current = api.cuCtxGetCurrent()
        if status == self._success and int(current) == self._context_number:
            result = api.cuLaunchKernel(function.handle, *sizes, stream, ctypes.addressof(argument), 0)
        else:
            with self._entered(label):
                result = api.cuLaunchKernel(function.handle, *sizes, stream, ctypes.addressof(argument), 0)
        if result[0] != self._success:
            self._check("cuLaunchKernel", result, f"{label}, grid {grid}, {threads} threads, {shared_bytes} B shared")

    @contextmanager
    def _entered(self, label: str) -> Iterator[None]:
        """The context is current on this thread, which may never have used the GPU, or another one."""
        self._check("cuCtxPushCurrent", self._api.cuCtxPushCurrent(self._context), label)
        try:
            yield
        finally:
            self._check("cuCtxPopCurrent", self._api.cuCtxPopCurrent(), label)


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value or "")
