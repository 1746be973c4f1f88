"""The part of cuda.bindings.driver that a launcher calls: every call is written down, any can be made to fail."""

from __future__ import annotations

import ctypes
from enum import IntEnum
from typing import Any


class CUresult(IntEnum):
    """The statuses that tests use."""

    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_NO_BINARY_FOR_GPU = 209
    CUDA_ERROR_ILLEGAL_ADDRESS = 700


class CUfunction_attribute(IntEnum):
    """Attributes of a function."""

    CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 1
    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8


class CUdevice_attribute(IntEnum):
    """Attributes of a GPU."""

    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76
    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR = 81
    CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR = 39
    CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR = 82
    CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE = 38


H200 = {
    CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: 9,
    CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: 0,
    CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: 132,
    CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: 232448,
    CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: 233472,
    CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR: 2048,
    CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR: 65536,
    CUdevice_attribute.CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: 60 << 20,
}
CONTEXT = 0xC0
UNASKED_SHARED = 48 * 1024  # static and dynamic shared memory of a block that was allowed no more
MOST_SHARED = H200[CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN]
SUCCESS, INVALID = CUresult.CUDA_SUCCESS, CUresult.CUDA_ERROR_INVALID_VALUE


class FakeDriver:
    """Stands in for the module. `fail[name]` is the status that call `name` returns; `calls` are (name, arguments).

    `static_bytes[kernel]` is the static shared memory of kernels of that name; shared memory is refused as drivers do.
    """

    CUresult = CUresult
    CUfunction_attribute = CUfunction_attribute
    CUdevice_attribute = CUdevice_attribute

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.fail: dict[str, CUresult] = {}
        self.contexts: list[int] = [CONTEXT]
        self.launched: list[bytes] = []  # the parameter struct of each launch
        self.params_bytes = 0
        self.static_bytes: dict[str, int] = {}
        self._allowed: dict[str, int] = {}  # dynamic shared memory, by function

    def named(self, name: str) -> list[tuple[Any, ...]]:
        """The arguments of every call of that name."""
        return [arguments for call, *arguments in self.calls if call == name]  # type: ignore[misc]

    def _done(
        self, name: str, arguments: tuple[Any, ...], *values: Any, otherwise: CUresult = SUCCESS
    ) -> tuple[Any, ...]:
        self.calls.append((name, *arguments))
        status = self.fail.get(name, otherwise)
        return (status, *(values if status == SUCCESS else [None] * len(values)))

    def _static(self, function: str) -> int:
        return self.static_bytes.get(function.partition(" of ")[0], 0)

    def cuInit(self, flags: int) -> tuple[Any, ...]:
        return self._done("cuInit", (flags,))

    def cuDeviceGet(self, index: int) -> tuple[Any, ...]:
        return self._done("cuDeviceGet", (index,), index)

    def cuDevicePrimaryCtxRetain(self, device: int) -> tuple[Any, ...]:
        return self._done("cuDevicePrimaryCtxRetain", (device,), CONTEXT)

    def cuDeviceGetAttribute(self, attribute: CUdevice_attribute, device: int) -> tuple[Any, ...]:
        return self._done("cuDeviceGetAttribute", (attribute, device), H200[attribute])

    def cuCtxGetCurrent(self) -> tuple[Any, ...]:
        return SUCCESS, self.contexts[-1] if self.contexts else 0

    def cuCtxPushCurrent(self, context: int) -> tuple[Any, ...]:
        self.contexts.append(context)
        return self._done("cuCtxPushCurrent", (context,))

    def cuCtxPopCurrent(self) -> tuple[Any, ...]:
        return self._done("cuCtxPopCurrent", (), self.contexts.pop())

    def cuModuleLoadData(self, image: bytes) -> tuple[Any, ...]:
        assert self.contexts, "no context is current"
        return self._done("cuModuleLoadData", (image,), f"module {len(self.named('cuModuleLoadData'))}")

    def cuModuleGetFunction(self, module: str, name: bytes) -> tuple[Any, ...]:
        return self._done("cuModuleGetFunction", (module, name), f"{name.decode()} of {module}")

    def cuFuncGetAttribute(self, attribute: CUfunction_attribute, function: str) -> tuple[Any, ...]:
        assert attribute == CUfunction_attribute.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES
        return self._done("cuFuncGetAttribute", (attribute, function), self._static(function))

    def cuFuncSetAttribute(self, function: str, attribute: CUfunction_attribute, value: int) -> tuple[Any, ...]:
        if self._static(function) + value > MOST_SHARED:
            return self._done("cuFuncSetAttribute", (function, attribute, value), otherwise=INVALID)
        done = self._done("cuFuncSetAttribute", (function, attribute, value))
        if done[0] == SUCCESS:
            self._allowed[function] = value
        return done

    def cuLaunchKernel(self, function: str, *arguments: Any) -> tuple[Any, ...]:
        assert self.contexts and self.contexts[-1] == CONTEXT, "the GPU's context is not current"
        *sizes, stream, kernel_params, extra = arguments
        assert extra == 0
        static, dynamic = self._static(function), sizes[-1]
        if static + dynamic > max(UNASKED_SHARED, static + self._allowed.get(function, 0)):
            return self._done("cuLaunchKernel", (function, *sizes, stream), otherwise=INVALID)
        first = ctypes.c_void_p.from_address(kernel_params).value
        assert first is not None
        self.launched.append(ctypes.string_at(first, self.params_bytes))
        return self._done("cuLaunchKernel", (function, *sizes, stream))

    def cuGetErrorName(self, status: CUresult) -> tuple[Any, ...]:
        return SUCCESS, status.name.encode()

    def cuGetErrorString(self, status: CUresult) -> tuple[Any, ...]:
        return SUCCESS, f"words for {int(status)}".encode()
