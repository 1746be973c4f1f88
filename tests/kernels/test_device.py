"""The launcher of a GPU against a driver that writes down what it is asked; there is no GPU here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.kernels.fake_driver import CONTEXT, MOST_SHARED, CUfunction_attribute, CUresult, FakeDriver
from tests.kernels.small_kernels import SCALE, SCALE_KERNEL, scale
from yaie_cuda import device, device_launcher, sources
from yaie_cuda.catalog import all_specialisations
from yaie_cuda.compiler import CompiledKernel
from yaie_cuda.device_launcher import DeviceLauncher
from yaie_cuda.driver import Driver
from yaie_cuda.errors import KernelLaunchError
from yaie_cuda.kernel import Specialisation
from yaie_cuda.report import CompileReport

pytestmark = pytest.mark.timeout(60)
STREAM = 0x5EA


class Bench:
    """A launcher over a fake driver, and what it compiled."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.driver = FakeDriver()
        self.driver.params_bytes = 24
        self.compiled: list[tuple[str, str]] = []
        self.capturing = False
        monkeypatch.setattr(device_launcher, "compile_kernel", self._compile)
        monkeypatch.setattr(device_launcher, "arch_for", lambda major, minor: f"sm_{major}{minor}")
        self.launcher = DeviceLauncher(0, Driver(0, self.driver), lambda index: STREAM + index, lambda: self.capturing)

    def _compile(self, specialisation: Specialisation, arch: str) -> CompiledKernel:
        self.compiled.append((specialisation.label, arch))
        return CompiledKernel(b"cubin of " + specialisation.label.encode(), CompileReport("", arch, ok=True))

    def launch(self, specialisation: Specialisation, grid: tuple[int, int, int] = (3, 2, 1)) -> None:
        params = SCALE_KERNEL.params(input=0x1000, out=0x2000, count=7, factor=2.0)
        self.launcher.launch(specialisation, grid, params)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    yield Bench(monkeypatch)
    sources.restore()


def test_a_launch_is_one_driver_call_with_the_struct_on_the_current_stream(bench: Bench) -> None:
    bench.launch(scale(64, 1024))
    params = SCALE_KERNEL.params(input=0x1000, out=0x2000, count=7, factor=2.0)
    assert bench.driver.named("cuLaunchKernel") == [["scale of module 0", 3, 2, 1, 64, 1, 1, 1024, STREAM]]
    assert bench.driver.launched == [bytes(params)]
    before = len(bench.driver.calls)
    bench.launch(scale(64, 1024))
    assert [call[0] for call in bench.driver.calls[before:]] == ["cuLaunchKernel"]


def test_code_is_compiled_and_loaded_once_and_for_the_gpu_at_hand(bench: Bench) -> None:
    for shared in (0, 1024, 100_000, 0):
        bench.launch(scale(64, shared))
    bench.launch(scale(128))
    assert bench.compiled == [("scale", "sm_90"), ("scale", "sm_90")]
    assert len(bench.driver.named("cuModuleLoadData")) == 2
    assert bench.driver.named("cuModuleLoadData")[0] == [b"cubin of scale"]


def test_shared_memory_is_allowed_up_to_the_highest_mark_and_never_lowered(bench: Bench) -> None:
    for shared in (0, 1024, 60_000, 100_000, 50_000, 100_000):
        bench.launch(scale(64, shared))
    attribute = CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    assert bench.driver.named("cuFuncSetAttribute") == [
        ["scale of module 0", attribute, 1024],
        ["scale of module 0", attribute, 60_000],
        ["scale of module 0", attribute, 100_000],
    ]


@pytest.mark.parametrize(
    "dynamic", [0, 16, 48 * 1024 - 1024, 48 * 1024 - 1023, 48 * 1024, 48 * 1024 + 1, MOST_SHARED - 1024]
)
@pytest.mark.parametrize("static", [0, 16, 1024])
def test_static_and_dynamic_shared_memory_are_asked_for_together(bench: Bench, static: int, dynamic: int) -> None:
    bench.driver.static_bytes["scale"] = static
    bench.launch(scale(64, dynamic))
    assert [call[-2] for call in bench.driver.named("cuLaunchKernel")] == [dynamic]


def test_no_kernel_of_ours_is_refused_for_shared_memory(bench: Bench) -> None:
    """Every one, with as much static shared memory as any of them has."""
    bench.driver.params_bytes = 1
    wanted = all_specialisations()
    for one in wanted:
        bench.driver.static_bytes[one.kernel.name] = 1024
        bench.launcher.launch(one, (1, 1, 1), one.kernel.params())
    assert len(bench.driver.named("cuLaunchKernel")) == len(wanted)


def test_more_shared_memory_than_a_block_has_is_refused_before_anything_is_compiled(bench: Bench) -> None:
    with pytest.raises(KernelLaunchError, match=r"scale\[A=1\].*300000 bytes.*cuda:0 has 232448"):
        bench.launch(scale(64, 300_000, A=1))
    assert bench.compiled == []


def test_static_shared_memory_counts_against_what_a_block_has(bench: Bench) -> None:
    bench.driver.static_bytes["scale"] = 1024
    with pytest.raises(KernelLaunchError, match=r"^scale: a block needs 232449 bytes.*cuda:0 has 232448"):
        bench.launch(scale(64, MOST_SHARED - 1023))
    assert bench.driver.named("cuFuncSetAttribute") == bench.driver.named("cuLaunchKernel") == []


def test_an_empty_grid_launches_nothing(bench: Bench) -> None:
    bench.launch(scale(), (4, 0, 1))
    assert bench.driver.named("cuLaunchKernel") == []


@pytest.mark.parametrize(
    ("call", "status"),
    [
        ("cuModuleLoadData", CUresult.CUDA_ERROR_NO_BINARY_FOR_GPU),
        ("cuModuleGetFunction", CUresult.CUDA_ERROR_INVALID_VALUE),
        ("cuFuncSetAttribute", CUresult.CUDA_ERROR_INVALID_VALUE),
        ("cuLaunchKernel", CUresult.CUDA_ERROR_ILLEGAL_ADDRESS),
    ],
)
def test_every_refusal_of_the_driver_names_the_kernel_and_the_call(bench: Bench, call: str, status: CUresult) -> None:
    bench.driver.fail[call] = status
    with pytest.raises(KernelLaunchError, match=rf"^scale.*{call} failed: {status.name}: words for {int(status)}"):
        bench.launch(scale(64, 100_000))
    assert bench.driver.contexts == [CONTEXT], "the context is left as it was found"
    bench.driver.fail.clear()
    bench.launch(scale(64, 100_000))
    assert bench.driver.named("cuLaunchKernel")[-1][0].startswith("scale")


def test_a_thread_that_never_used_the_gpu_gets_its_context_and_loses_it_again(bench: Bench) -> None:
    bench.driver.contexts.clear()
    bench.launch(scale())
    assert bench.driver.contexts == []
    bench.driver.contexts.append(0xBAD)
    bench.launch(scale())
    assert bench.driver.contexts == [0xBAD]
    assert len(bench.driver.named("cuLaunchKernel")) == 2


def test_nothing_is_loaded_while_a_graph_is_captured_but_warm_kernels_run(bench: Bench) -> None:
    bench.launch(scale())
    bench.capturing = True
    bench.launch(scale())
    with pytest.raises(KernelLaunchError, match=r"scale\[A=1\] would be loaded while a CUDA graph is captured"):
        bench.launch(scale(A=1))


def test_warm_up_loads_everything_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []
    monkeypatch.setattr(
        device_launcher, "compile_all", lambda wanted, progress: asked.extend((one.label, a) for one, a in wanted)
    )
    bench.launcher.warm_up([scale(), scale(A=1), scale()])
    assert asked == [("scale", "sm_90"), ("scale[A=1]", "sm_90")]
    loaded = len(bench.driver.named("cuModuleLoadData"))
    bench.launch(scale(A=1))
    assert (loaded, len(bench.driver.named("cuModuleLoadData"))) == (2, 2)


def test_a_replaced_source_is_compiled_anew(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "built_in", lambda name: SCALE)
    bench.launch(scale())
    sources.replace("scale", SCALE + "// mine")
    bench.launch(scale())
    bench.launch(scale())
    assert len(bench.compiled) == 2
    assert [call[0] for call in bench.driver.named("cuLaunchKernel")] == [
        "scale of module 0",
        "scale of module 1",
        "scale of module 1",
    ]


def test_limits_are_read_from_the_gpu(bench: Bench) -> None:
    launcher = bench.launcher
    assert (launcher.name, launcher.multiprocessors, launcher.max_shared_bytes) == ("cuda:0", 132, 232448)
    assert (launcher.arch, launcher.limits.capability, launcher.limits.l2_bytes) == ("sm_90", (9, 0), 60 << 20)


def test_a_driver_that_does_not_start_says_so() -> None:
    driver = FakeDriver()
    driver.fail["cuInit"] = CUresult.CUDA_ERROR_INVALID_VALUE
    with pytest.raises(KernelLaunchError, match=r"GPU 1: cuInit failed: CUDA_ERROR_INVALID_VALUE"):
        Driver(1, driver)


class TestUnusableReason:
    """One line for each way in which a GPU cannot be used, in the order of what a person must do first."""

    @pytest.fixture(autouse=True)
    def usable(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """A machine where everything is there; tests take one thing away."""
        device.unusable_reason.cache_clear()
        monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
        monkeypatch.setattr(device, "compiler_reason", lambda: "")
        monkeypatch.setattr(device, "has_driver", lambda: True)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: (8, 0))
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: "NVIDIA Test")
        yield
        device.unusable_reason.cache_clear()

    def test_a_usable_gpu_has_none(self) -> None:
        assert device.unusable_reason() == ""

    def test_another_index(self) -> None:
        assert device.unusable_reason(1) == "there is no GPU 1, only 1"

    def test_torch_without_cuda(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: False)
        assert device.unusable_reason() == f"this PyTorch ({torch.__version__}) is built without CUDA"

    def test_packages_missing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(device, "compiler_reason", lambda: "no compiler; pip install it")
        assert device.unusable_reason() == "no compiler; pip install it"

    def test_no_driver(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(device, "has_driver", lambda: False)
        assert device.unusable_reason() == "there is no NVIDIA driver on this machine"

    def test_no_gpu(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
        assert device.unusable_reason() == "there is no NVIDIA GPU"

    def test_too_old_a_gpu(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: (7, 5))
        assert "NVIDIA Test has compute capability 7.5; the kernels need 8.0" in device.unusable_reason()

    def test_the_launcher_repeats_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(device, "has_driver", lambda: False)
        device.launcher.cache_clear()
        with pytest.raises(RuntimeError, match="GPU 0 cannot run kernels: there is no NVIDIA driver"):
            device.launcher(0)


@pytest.mark.timeout(300)
def test_asking_for_a_driver_never_hangs() -> None:
    code = "from yaie_cuda import device; print(device.has_driver(), device.has_driver(), device.unusable_reason())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=250, check=True)
    assert done.stdout.split()[0] in ("True", "False")


@pytest.mark.skipif(shutil.which("g++") is None, reason="the library is built by g++")
def test_the_name_that_drivers_install_is_enough(tmp_path: Path) -> None:
    """A machine with a driver and no SDK has libcuda.so.1 and no libcuda.so, and any version of cuda-pathfinder."""
    library = tmp_path / "libcuda.so.1"
    command = ["g++", "-shared", "-x", "c++", "-", "-o", str(library)]
    subprocess.run(command, input='extern "C" int cuInit(unsigned) { return 100; }', text=True, check=True)
    code = "import sys; sys.modules['cuda.pathfinder'] = None; from yaie_cuda import device; print(device.has_driver())"
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.strip() == "True"


def test_a_library_that_is_not_there_is_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "DRIVER", "libcuda-that-nobody-has.so.1")
    device.has_driver.cache_clear()
    assert not device.has_driver()
    device.has_driver.cache_clear()
