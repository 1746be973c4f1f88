"""Kernels that do what they must not: the process lives on, and the message says who, where and what."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
import torch

from tests.kernels.small_kernels import SCALE, SCALE_KERNEL, scale, text
from yaie_cuda import host_build, sources
from yaie_cuda.emulator import build
from yaie_cuda.emulator.launcher import EmulatorLauncher, Options
from yaie_cuda.errors import EmulatorError, KernelCompileError, ToolMissingError
from yaie_cuda.kernel import Kernel, Specialisation
from yaie_cuda.specialisations.fused import silu_specialisation

pytestmark = pytest.mark.timeout(300)
KERNEL = Kernel("faulty", (("out", "p"), ("zero", "i"), ("pad", "i")))
FIELDS = "    int32_t* out;\n    int32_t zero;\n    int32_t pad;"
ALL_FAULTS = """
    DYNAMIC_SHARED(shared);
    auto* cell = reinterpret_cast<int32_t*>(shared);
    const int i = threadIdx.x;
    if (FAULT == 0) p.out[i] = 1;
    if (FAULT == 1) *reinterpret_cast<int32_t*>(uintptr_t(p.zero) + 16) = 1;
    if (FAULT == 2) p.out[i] = i / p.zero;
    if (FAULT == 3) p.out[i] = deep(i + 1000000);
    if (FAULT == 4) cell[i + 256] = 1;
    if (FAULT == 5) cell[i + 1] = 1;
    if (FAULT == 6 && i < 32) __syncthreads();
    if (FAULT == 7) i < 32 ? __syncthreads() : __syncwarp();
    if (FAULT == 8) {
        if (i < 32)
            __syncthreads();
        else
            __syncthreads();
    }
    if (FAULT == 9) i % 2 ? p.out[i] = __shfl_xor_sync(~0u, i, 1) : p.out[i] = int(__ballot_sync(~0u, i));
    if (FAULT == 10) __syncwarp(0x7fffffffu);
    if (FAULT == 11) __syncwarp(i % 2 ? 0xffffffffu : 0x55555555u);
    if (FAULT == 12) cp_async_16(cell + 1, p.out, true);
    if (FAULT == 13 && i % 32) __syncwarp();
    if (FAULT == 14) named_barrier(16, 64);
    if (FAULT == 15 && i < 32) named_barrier(1, 64);
    if (FAULT == 16) store_vector(cell + 1, make_uint4(1, 2, 3, 4));
"""
DEEP = (
    "__device__ __noinline__ int deep(int n) { volatile int a[64]; a[n % 64] = n; return n ? deep(n - 1) + a[1] : 0; }"
)
FAULTS = {
    1: r"thread \(0,0,0\) of block \(0,0,0\): access to bad address 0x10.* at faulty\.cu:\d+",
    2: r"thread \(0,0,0\) of block \(0,0,0\): division by zero",
    3: r"the thread's stack is full",
    4: r"access outside of shared memory",
    5: r"wrote byte 256 of 256 bytes of shared memory",
    6: r"faulty\.cu:\d+: thread .* ended, while 32 threads wait in __syncthreads",
    7: r"faulty\.cu:\d+: thread .* ended, while 32 threads wait in __syncthreads",
    8: r"__syncthreads, while 32 threads wait in another one at faulty\.cu:\d+",
    9: r"mask ffffffff.*while lanes 00000001 of the warp wait in __ballot_sync with mask ffffffff at faulty\.cu",
    10: r"mask 7fffffff does not name the calling lane 31",
    11: r"__syncwarp with mask ffffffff, while lanes 00000001 of the warp wait in __syncwarp with mask 55555555",
    12: r"faulty\.cu:\d+: thread \(0,0,0\).*cp_async_16: address 0x[0-9a-f]+ is not a multiple of 16",
    13: r"mask ffffffff names lanes that have ended or do not exist \(00000001\)",
    14: r"named_barrier: 16; 1 to 15 are allowed",
    15: r"no thread can go on: threads 0-31 wait in named_barrier at faulty\.cu:\d+; threads 32-63 ended",
    16: r"store_vector: address 0x[0-9a-f]+ is not a multiple of 16",
}


def launch(fault: int, options: Options | None = None) -> torch.Tensor:
    """Run the kernel with one of its faults; 0 is none."""
    out = torch.zeros(64, dtype=torch.int32)
    launcher = EmulatorLauncher(options or Options(), {"faulty": text("faulty", FIELDS, ALL_FAULTS, DEEP)})
    launcher.watch(out)
    launcher.launch(KERNEL.specialise(64, 256, FAULT=fault), (1, 1, 1), KERNEL.params(out=out.data_ptr()))
    return out


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_becomes_an_error_and_the_next_launch_works(fault: int) -> None:
    with pytest.raises(EmulatorError, match=rf"^faulty\[FAULT={fault}\]: (?s:.*)(?:{FAULTS[fault]})"):
        launch(fault)
    assert launch(0).tolist() == [1] * 64


def test_a_fault_on_one_of_several_system_threads() -> None:
    with pytest.raises(EmulatorError, match="access to bad address"):
        launch(1, Options(os_threads=3))


def test_faults_in_several_python_threads_do_not_mix() -> None:
    found: list[str] = []

    def work(fault: int) -> None:
        for _ in range(25):  # often: launches that overlap once took each other's signal handlers away
            try:
                launch(fault)
            except EmulatorError as error:
                found.append(f"{fault} {error}")

    threads = [threading.Thread(target=work, args=(fault,)) for fault in (1, 10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(line[:2] for line in found) == ["1 "] * 25 + ["10"] * 25
    assert all(("bad address" in line) == line.startswith("1 ") for line in found)


def test_an_address_outside_of_every_known_tensor_is_refused_under_a_sanitizer() -> None:
    launcher = EmulatorLauncher(Options(sanitizer="address"), {"scale": SCALE})
    known, unknown = torch.zeros(8), torch.zeros(8)
    launcher.watch(known)
    params = SCALE_KERNEL.params(input=known.data_ptr(), out=unknown.data_ptr(), count=8)
    with pytest.raises(EmulatorError, match=r"scale: out points at no tensor given to watch\(\)"):
        launcher.launch(scale(), (1, 1, 1), params)


def test_too_much_shared_memory() -> None:
    launcher = EmulatorLauncher(replacements={"scale": SCALE})
    with pytest.raises(EmulatorError, match="300000 bytes of shared memory; a block has 232448"):
        launcher.launch(scale(shared_bytes=300_000), (1, 1, 1), SCALE_KERNEL.params())


class TestBuild:
    """Compiling for the CPU, and keeping what was compiled."""

    def test_an_error_names_the_kernel_and_its_own_line(self) -> None:
        broken = SCALE.replace("p.factor", "p.fuctor")
        with pytest.raises(KernelCompileError) as caught:
            build.build(scale(), source=broken)
        line = next(i for i, text in enumerate(broken.splitlines(), 1) if "fuctor" in text)
        assert f"scale.cu:{line}:" in caught.value.log
        assert caught.value.kernel == "scale"

    def test_a_second_build_compiles_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        first = build.build(scale(), source=SCALE)
        monkeypatch.setattr(build, "compile_whole", lambda *_: pytest.fail("it was compiled again"))
        assert build.build(scale(), source=SCALE) == first
        assert build.build(scale(shared_bytes=4096), source=SCALE) == first

    def test_text_and_macros_and_headers_tell_builds_apart(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(build, "compile_whole", lambda *_: None)
        monkeypatch.setattr(build, "_runtime", lambda _: build.HERE)
        names = {build.build(scale(), source=SCALE), build.build(scale(A=1), source=SCALE)}
        names |= {build.build(scale(), source=SCALE + "\n"), build.build(scale(threads=32), source=SCALE)}
        monkeypatch.setattr(build, "_headers", lambda *_: b"changed")
        names.add(build.build(scale(), source=SCALE))
        assert len(names) == 5

    def test_builds_at_the_same_time_end_with_one_whole_file(self, tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
        monkeypatch.setenv("YAIE_CACHE_DIR", str(tmp_path))
        monkeypatch.setattr(build, "_runtime", lambda _: tmp_path / "none.o")
        monkeypatch.setattr(host_build, "run_tool", fake_compiler)
        barrier, paths = threading.Barrier(6), []

        def work() -> None:
            barrier.wait()
            paths.append(build.build(scale(), source=SCALE))

        threads = [threading.Thread(target=work) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(paths)) == 1
        assert [path.name for path in (tmp_path / "emulator").iterdir()] == [paths[0].name]
        assert paths[0].read_bytes().startswith(b"whole") and host_build.is_whole(paths[0])

    def test_a_replaced_source_is_what_runs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sources, "built_in", lambda name: SCALE)
        launcher, x, y = EmulatorLauncher(), torch.ones(8), torch.zeros(8)
        params = SCALE_KERNEL.params(input=x.data_ptr(), out=y.data_ptr(), count=8, factor=3.0)
        launcher.launch(scale(), (1, 1, 1), params)
        assert y.tolist() == [3.0] * 8
        try:
            sources.replace("scale", SCALE.replace("p.factor *", "1.f + p.factor *"))
            launcher.launch(scale(), (1, 1, 1), params)
        finally:
            sources.restore()
        assert y.tolist() == [4.0] * 8
        launcher.launch(scale(), (1, 1, 1), params)
        assert y.tolist() == [3.0] * 8

    def test_ucontext_gives_the_same(self, monkeypatch: pytest.MonkeyPatch) -> None:
        flags = (*build.MODES[""].runtime, "-DEMU_UCONTEXT")
        monkeypatch.setitem(build.MODES, "", build.Mode(build.MODES[""].kernel, flags))
        assert launch(0).tolist() == [1] * 64
        with pytest.raises(EmulatorError, match=FAULTS[9]):
            launch(9)

    def test_no_compiler(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(build.shutil, "which", lambda name: None)
        build.compiler.cache_clear()
        assert "apt install g++" in build.emulator_reason()
        with pytest.raises(ToolMissingError, match=r"neither g\+\+ nor clang\+\+ is installed"):
            build.build(scale(), source=SCALE)

    def test_another_system(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(build.sys, "platform", "darwin")
        assert build.emulator_reason() == "kernels are emulated on Linux only, this is darwin (on Windows: WSL)"


def fake_compiler(command: list[str], *_: object) -> tuple[int, str]:
    """Writes its output in two steps, as a compiler does."""
    from pathlib import Path

    target = Path(command[command.index("-o") + 1])
    target.write_text("who")
    threading.Event().wait(0.05)
    target.write_text("whole")
    return 0, ""


ENDLESS = """
    volatile int32_t* place = p.out;
    const int mine = int(blockIdx.x);
    while (mine == BAD) WAITING;
    p.out[mine] = 1;
"""


@pytest.mark.parametrize("waiting", ["place[mine] = 7", "__syncwarp()"], ids=["busy", "meeting others"])
@pytest.mark.parametrize("os_threads", [1, 3])
def test_a_kernel_that_never_ends_is_stopped(waiting: str, os_threads: int) -> None:
    source = text("faulty", FIELDS, ENDLESS.replace("WAITING", waiting))
    out = torch.zeros(6, dtype=torch.int32)

    def run(bad: int, limit_s: float = 0.3) -> None:
        launcher = EmulatorLauncher(Options(limit_s=limit_s, os_threads=os_threads), {"faulty": source})
        launcher.launch(KERNEL.specialise(32, BAD=bad), (6, 1, 1), KERNEL.params(out=out.data_ptr()))

    for bad in (0, 4):
        start = time.monotonic()
        with pytest.raises(EmulatorError, match=rf"of block \({bad},0,0\): it did not end within 0.3 s and was"):
            run(bad)
        assert time.monotonic() - start < 20
    out.zero_()
    run(-1)
    assert out.tolist() == [1] * 6


def test_built_in_kernels_have_all_the_time_they_need() -> None:
    launched: list[int] = []

    class Watched(EmulatorLauncher):
        def _function(self, specialisation: Specialisation) -> Any:
            def run(launch: Any, *_: Any) -> int:
                launched.append(launch._obj.limit_ms)
                return 0

            return run

    built_in = silu_specialisation("float32", 4)
    launcher = Watched(Options(limit_s=2.5))
    launcher.launch(built_in, (1, 1, 1), built_in.kernel.params())
    sources.replace("silu_and_mul", "another text")
    try:
        launcher.launch(built_in, (1, 1, 1), built_in.kernel.params())
    finally:
        sources.restore()
    assert launched == [0, 2500]
