"""Buffers on several streams of one GPU, outside and inside of captures. The driver is a fake, memory the host's."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.kernels.fake_driver import CONTEXT, CUresult, FakeDriver
from tests.kernels.small_kernels import SCALE_KERNEL, scale
from yaie_cuda import device_launcher, sources
from yaie_cuda.compiler import CompiledKernel
from yaie_cuda.device_launcher import DeviceLauncher
from yaie_cuda.driver import Driver
from yaie_cuda.errors import KernelLaunchError
from yaie_cuda.kernel import Launcher
from yaie_cuda.prepared import Launch, Room, prepared
from yaie_cuda.report import CompileReport

pytestmark = pytest.mark.timeout(60)
MAIN, SIDE, OTHER = 0, 0x51DE, 0x0712
GPU = torch.device("cuda", 0)


class OnGpu(Tensor):
    """Host memory that says that it is a GPU's."""

    is_cuda = True


class Gpu:
    """A launcher, the stream that is current, and whether it captures."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.driver, self.stream, self.capturing = FakeDriver(), MAIN, False
        self.driver.params_bytes = 24
        empty = torch.empty

        def on_gpu(*sizes: Any, device: Any = None, **named: Any) -> Tensor:
            return empty(*sizes, **named).as_subclass(OnGpu) if device == GPU else empty(*sizes, device=device, **named)

        def compiled(*_: object) -> CompiledKernel:
            return CompiledKernel(b"", CompileReport("", "sm_90", ok=True))

        monkeypatch.setattr(torch, "empty", on_gpu)
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: self.capturing)
        monkeypatch.setattr(device_launcher, "compile_kernel", compiled)
        monkeypatch.setattr(device_launcher, "arch_for", lambda major, minor: f"sm_{major}{minor}")
        self.launcher = DeviceLauncher(0, Driver(0, self.driver), lambda index: self.stream, lambda: self.capturing)

    def take(self, stream: int, count: int = 8, capturing: bool = False) -> Tensor:
        """The workspace on that stream."""
        self.stream, self.capturing = stream, capturing
        return self.launcher.workspace("room", (count,), torch.int32, GPU)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gpu]:
    yield Gpu(monkeypatch)
    sources.restore()


def test_streams_have_buffers_of_their_own_and_keep_them(gpu: Gpu) -> None:
    first = {stream: gpu.take(stream) for stream in (MAIN, SIDE, OTHER)}
    assert len({one.data_ptr() for one in first.values()}) == 3
    grown = gpu.take(SIDE, 99)
    assert grown.data_ptr() != first[SIDE].data_ptr()
    for stream, before in ((MAIN, first[MAIN]), (SIDE, grown), (OTHER, first[OTHER])):
        assert gpu.take(stream).data_ptr() == before.data_ptr()


def test_a_capture_uses_the_buffer_of_its_stream_which_outlives_growth(gpu: Gpu) -> None:
    main, warm = gpu.take(MAIN, 99), gpu.take(SIDE, 8)
    captured = gpu.take(SIDE, 8, capturing=True)
    assert captured.data_ptr() == warm.data_ptr() != main.data_ptr()
    address, larger = captured.data_ptr(), gpu.take(SIDE, 99)
    del captured, warm
    # What is freed is handed out again at once; the graph still has the address.
    assert address not in {torch.empty(8, dtype=torch.int32, device=GPU).data_ptr() for _ in range(100)}
    assert [one.data_ptr() for one in gpu.launcher._stream().workspace._captured.values()] == [address]
    assert gpu.take(SIDE, 8, capturing=True).data_ptr() == larger.data_ptr(), "the next graph shares the new one"


def test_a_capture_on_a_stream_that_ran_nothing_is_an_error_whatever_others_ran(gpu: Gpu) -> None:
    gpu.take(MAIN, 99)
    with pytest.raises(RuntimeError, match="would grow to 8 elements while a CUDA graph is captured"):
        gpu.take(SIDE, 8, capturing=True)
    gpu.take(SIDE, 8)
    gpu.take(SIDE, 8, capturing=True)


def test_buffers_are_dropped_with_the_calls_that_were_prepared_with_them(gpu: Gpu) -> None:
    """Those of captured graphs as well: an engine that sleeps has dropped its graphs."""
    for stream in (MAIN, SIDE):
        gpu.take(stream, 99)
        gpu.take(stream, 8, capturing=True)
    gpu.capturing = False
    scaled(gpu.launcher, torch.zeros(4), torch.zeros(4))
    kept = [weakref.ref(one) for stream in gpu.launcher._streams.values() for one in stream.workspace._flat.values()]
    prepared = gpu.launcher.prepared
    gpu.launcher.drop_buffers()
    assert [one() for one in kept] == [None, None] and gpu.launcher.buffer_bytes == 0
    assert gpu.launcher.prepared is not prepared and len(gpu.launcher.prepared) == 0
    assert gpu.launcher.loaded == (scale(),), "the code stays"
    scaled(gpu.launcher, torch.zeros(4), torch.zeros(4))
    assert len(gpu.driver.named("cuModuleLoadData")) == 1


def test_threads_that_come_first_at_the_same_time_share_what_belongs_to_the_stream(gpu: Gpu) -> None:
    barrier, found = threading.Barrier(8), []

    def work() -> None:
        barrier.wait()
        found.append(gpu.launcher.prepared)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(one) for one in found}) == 1


def test_launchers_of_one_gpu_share_code_and_no_buffer(gpu: Gpu) -> None:
    """Two engines: what one leaves in a buffer between two launches cannot be the other's, also inside of graphs."""
    one, other = gpu.launcher, gpu.launcher.apart()
    for launcher in (one, other):
        scaled(launcher, torch.zeros(4), torch.zeros(4))
    assert len(gpu.driver.named("cuModuleLoadData")) == 1
    gpu.stream = SIDE
    buffers = [launcher.workspace("room", (8,), torch.int32, GPU) for launcher in (one, other)]
    assert buffers[0].data_ptr() != buffers[1].data_ptr()
    assert (one.buffer_bytes, gpu.launcher.apart().buffer_bytes) == (32, 0)
    assert one.loaded == other.loaded == (scale(),) and gpu.launcher.apart().loaded == ()
    sources.replace("silu_and_mul", "another text")
    scaled(other, torch.zeros(4), torch.zeros(4))
    assert len(gpu.driver.named("cuModuleLoadData")) == 2
    scaled(one, torch.zeros(4), torch.zeros(4))
    assert len(gpu.driver.named("cuModuleLoadData")) == 2


@prepared
def scaled(launcher: Launcher, input: Tensor, out: Tensor) -> tuple[Launch, ...]:
    """An op of one launch without buffers."""
    return (Launch(scale(), (1, 1, 1), {"count": 4}),)


@prepared
def three_times(launcher: Launcher, input: Tensor) -> tuple[Launch, ...]:
    """An op whose launches hand something on to each other."""
    room = Room("handed on", (4,), torch.float32)
    steps = ({"input": "input", "out": room}, {"input": room, "out": room}, {"input": room, "out": "input"})
    return tuple(Launch(scale(), (1, 1, 1), {"count": 4}, pointers) for pointers in steps)


def test_launches_that_hand_a_buffer_on_are_not_interleaved(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[int] = []
    launch = gpu.driver.cuLaunchKernel

    def slow(*arguments: Any) -> tuple[Any, ...]:
        order.append(threading.get_ident())
        time.sleep(0.001)
        return launch(*arguments)

    monkeypatch.setattr(gpu.driver, "cuLaunchKernel", slow)
    monkeypatch.setattr(gpu.driver, "cuCtxGetCurrent", lambda: (CUresult.CUDA_SUCCESS, CONTEXT))
    three_times(gpu.launcher, torch.zeros(4))

    def work() -> None:
        for _ in range(20):
            three_times(gpu.launcher, torch.zeros(4))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(order) == 3 * 61
    assert all(len(set(order[at : at + 3])) == 1 for at in range(0, len(order), 3))


@prepared
def counting(launcher: Launcher, input: Tensor) -> tuple[Launch, ...]:
    """An op whose kernel needs zeros."""
    room = Room("zeros", (4,), torch.int32, zero=True)
    return (Launch(scale(), (1, 1, 1), {"count": 4}, {"input": "input", "out": room}),)


def test_what_must_be_zero_is_cleared_on_every_stream_and_after_a_failure_on_it(gpu: Gpu) -> None:
    def zeros(stream: int) -> Tensor:
        gpu.stream = stream
        return gpu.launcher.workspace("zeros", (4,), torch.int32, x.device)

    x = torch.zeros(4)
    for stream in (MAIN, SIDE):
        zeros(stream).fill_(7)  # as new memory may be
        counting(gpu.launcher, x)
        assert zeros(stream).tolist() == [0] * 4
    places = [SCALE_KERNEL.params.from_buffer_copy(one).out for one in gpu.driver.launched]
    assert places == [zeros(MAIN).data_ptr(), zeros(SIDE).data_ptr()]
    gpu.driver.fail["cuLaunchKernel"] = CUresult.CUDA_ERROR_ILLEGAL_ADDRESS
    with pytest.raises(KernelLaunchError):
        counting(gpu.launcher, x)
    gpu.driver.fail.clear()
    zeros(SIDE).fill_(7)
    counting(gpu.launcher, x)
    assert zeros(SIDE).tolist() == [0] * 4
