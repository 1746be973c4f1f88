"""NVRTC: every kernel of the CI set for every arch, and what is kept on disk."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.kernels import old_nvrtc
from tests.kernels.register_page import PAGE, rows_of
from tests.kernels.small_kernels import SCALE, scale
from yaie_cuda import compiler, cubin_cache
from yaie_cuda.catalog import ARCHS, all_specialisations, ci_specialisations
from yaie_cuda.compiler import arch_for, compile_all, compile_kernel
from yaie_cuda.errors import KernelCompileError, ToolMissingError
from yaie_cuda.kernel import Specialisation
from yaie_cuda.report import CompileReport

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(bool(compiler.compiler_reason()), reason=compiler.compiler_reason()),
]
# Another version of NVRTC may need a few registers more: 13.0 took 229 where 13.5 took 216.
SLACK = 1.15
FEW = 8
# Shared memory of a block in KiB, static and dynamic, on the GPUs of an arch.
MOST_SHARED = {"sm_80": 163, "sm_86": 99, "sm_89": 99, "sm_90": 227, "sm_100": 227, "sm_120": 99}


def check(specialisations: tuple[Specialisation, ...]) -> list[CompileReport]:
    """Compile for every arch; nothing fails, spills, uses a stack, or has more registers or shared memory than a block
    may have.
    """
    reports = compile_all((one, arch) for one in specialisations for arch in ARCHS)
    threads = {one.label: one.threads for one in specialisations}
    for report in reports:
        assert report.ok, f"{report.name} for {report.arch}:\n{report.log}"
        assert (report.spill_bytes, report.stack_bytes) == (0, 0), f"{report.name} for {report.arch}: {report}"
        assert report.registers <= min(255, 65536 // threads[report.name])
        assert report.shared_bytes <= MOST_SHARED[report.arch] * 1024, f"{report.name} for {report.arch}: {report}"
    return reports


@pytest.mark.slow
def test_every_kernel_compiles_for_every_arch_without_spills() -> None:
    known = rows_of(PAGE.read_text(encoding="utf-8"))
    for report in check(ci_specialisations()):
        assert report.name in known, f"docs/kernels.md does not know {report.name}: run scripts/kernels"
        limit = known[report.name][ARCHS.index(report.arch)] * SLACK + FEW
        assert report.registers <= limit, (
            f"{report.name} for {report.arch}: {report.registers} registers, limit {limit}"
        )


@pytest.mark.full
def test_everything_that_an_op_can_ask_for_compiles() -> None:
    check(all_specialisations())


@pytest.mark.full
@pytest.mark.skipif(sys.platform != "linux", reason="the library is looked for under its name on Linux")
def test_every_kernel_compiles_with_the_oldest_nvrtc_that_is_allowed(tmp_path: Path) -> None:
    reason = old_nvrtc.install()
    if reason:
        pytest.skip(reason)
    found = old_nvrtc.compiled(tmp_path)
    assert found["version"] == [13, 0], "another NVRTC was loaded"
    assert [name for name, *_ in found["reports"]] == [one.label for one in ci_specialisations()]
    for name, ok, registers, spills, log in found["reports"]:
        assert ok, f"{name}:\n{log}"
        assert registers > 0 and spills == 0, f"{name}: {registers} registers, {spills} bytes spilled"


def test_an_old_nvrtc_that_cannot_be_fetched_has_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(old_nvrtc, "FOLDER", tmp_path)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert old_nvrtc.install().startswith("pip cannot get nvidia-cuda-nvrtc>=13.0,<13.1 (offline?): ERROR: ")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder."""
    monkeypatch.setenv("YAIE_CACHE_DIR", str(tmp_path))
    return tmp_path / "cubins"


def test_a_report_and_a_second_compile_from_disk(cache: Path) -> None:
    first = compile_kernel(scale(64, 1024), "sm_90", SCALE)
    assert first.report.ok and not first.report.cached
    assert 8 <= first.report.registers <= 32
    assert (first.report.spill_bytes, first.report.stack_bytes, first.report.shared_bytes) == (0, 0, 1024)
    assert first.report.cubin_bytes == len(first.cubin) and first.cubin[:4] == b"\x7fELF"
    assert first.report.compile_ms > 0
    second = compile_kernel(scale(64, 2048), "sm_90", SCALE)
    assert second.cubin == first.cubin
    assert second.report.cached and second.report.registers == first.report.registers
    assert second.report.shared_bytes == 2048
    assert len(list(cache.iterdir())) == 1


def test_static_shared_memory_is_counted(cache: Path) -> None:
    tile = "    __shared__ float tile[THREADS];\n    tile[threadIdx.x] = 1.f;\n    __syncthreads();\n    const int i ="
    source = SCALE.replace("    const int i =", tile).replace("p.factor *", "tile[THREADS - 1 - threadIdx.x] *")
    assert compile_kernel(scale(64, 100), "sm_80", source).report.shared_bytes == 64 * 4 + 100


def test_what_makes_a_kernel_another_one(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def compile_nothing(specialisation: Specialisation, arch: str, text: str) -> tuple[bytes, str]:
        asked.append(arch)
        return b"cubin", "Used 8 registers"

    monkeypatch.setattr(compiler, "_compile", compile_nothing)
    for _ in range(2):
        compile_kernel(scale(), "sm_90", SCALE)
        compile_kernel(scale(), "sm_80", SCALE)
        compile_kernel(scale(threads=32), "sm_90", SCALE)
        compile_kernel(scale(A=1), "sm_90", SCALE)
        compile_kernel(scale(), "sm_90", SCALE + "\n")
        with monkeypatch.context() as patch:
            patch.setattr(compiler, "nvrtc_version", lambda: (99, 1))
            compile_kernel(scale(), "sm_90", SCALE)
        for change in ({"std": "c++17"}, {"ptxas_options": ("-v", "-O1")}, {"use_fast_math": "1"}):
            with monkeypatch.context() as patch:
                patch.setattr(compiler, "OPTIONS", {**compiler.OPTIONS, **change})
                compile_kernel(scale(), "sm_90", SCALE)
    assert len(asked) == 9


def test_every_option_of_the_compiler_is_part_of_the_name_on_disk(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What NVRTC is told is the kernel's name, macros and arch, and OPTIONS: the parts that the name is made of."""
    import cuda.core

    told: list[dict[str, object]] = []
    options = cuda.core.ProgramOptions

    def noting(**given: object) -> object:
        told.append(given)
        return options(**given)

    monkeypatch.setattr(cuda.core, "ProgramOptions", noting)
    compile_kernel(scale(), "sm_90", SCALE)
    assert [set(one) for one in told] == [{"name", "arch", "define_macro", *compiler.OPTIONS}]


@pytest.mark.parametrize("damage", ["cut", "changed", "empty", "no json", "another version"])
def test_a_damaged_file_is_compiled_anew(cache: Path, damage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    good = compile_kernel(scale(), "sm_90", SCALE)
    (path,) = cache.iterdir()
    data = path.read_bytes()
    head, _, body = data.partition(b"\n")
    path.write_bytes(
        {
            "cut": data[:-10],
            "changed": data[:-1] + bytes([data[-1] ^ 1]),
            "empty": b"",
            "no json": b"{not json\n" + body,
            "another version": head.replace(cubin_cache.FORMAT.encode(), b"yaie-cubin-0") + b"\n" + body,
        }[damage]
    )
    again = compile_kernel(scale(), "sm_90", SCALE)
    assert not again.report.cached
    assert again.cubin == good.cubin
    assert compile_kernel(scale(), "sm_90", SCALE).report.cached, "the damaged file is replaced"


def test_a_folder_that_cannot_be_written_costs_only_time(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("YAIE_CACHE_DIR", "/proc/nothing")
    assert compile_kernel(scale(), "sm_90", SCALE).report.ok


def test_an_error_names_kernel_macros_file_and_line(cache: Path) -> None:
    broken = SCALE.replace("p.factor", "p.fuctor")
    with pytest.raises(KernelCompileError) as caught:
        compile_kernel(scale(A=1), "sm_90", broken)
    line = next(i for i, text in enumerate(broken.splitlines(), 1) if "fuctor" in text)
    assert f"scale.cu({line}): error:" in caught.value.log
    assert caught.value.kernel == "scale[A=1]" and caught.value.target == "sm_90"
    assert str(caught.value).startswith("scale[A=1] did not compile for sm_90:\nscale.cu(")
    assert not cache.exists()


def test_an_error_in_a_header_names_the_header(cache: Path) -> None:
    source = SCALE.replace("const int i", "cp_async_wait<no_such_name>();\n    const int i")
    with pytest.raises(KernelCompileError, match=r"scale\.cu\(11\): error: identifier \"no_such_name\""):
        compile_kernel(scale(), "sm_90", source)
    with pytest.raises(KernelCompileError, match=r"no_such\.cuh"):
        compile_kernel(scale(), "sm_90", '#include "no_such.cuh"\n' + SCALE)


def test_a_failure_among_many_is_a_report(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("yaie_cuda.sources.built_in", lambda name: SCALE + "\n#ifdef A\nnonsense\n#endif\n")
    told: list[tuple[int, int, str]] = []
    wanted = [(scale(), "sm_80"), (scale(A=1), "sm_80"), (scale(), "sm_90"), (scale(), "sm_80")]
    reports = compile_all(wanted, lambda done, of, report: told.append((done, of, report.name)))
    assert [(one.name, one.arch, one.ok) for one in reports] == [
        ("scale", "sm_80", True),
        ("scale[A=1]", "sm_80", False),
        ("scale", "sm_90", True),
    ]
    assert "scale.cu(" in reports[1].log
    assert [line[:2] for line in told] == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize(
    ("capability", "known", "arch"),
    [
        ((9, 0), (80, 86, 89, 90), "sm_90"),
        ((8, 7), (80, 86, 89, 90), "sm_86"),
        ((8, 9), (80,), "sm_80"),
        ((12, 1), (90, 120), "sm_120"),
    ],
)
def test_the_arch_of_a_gpu(
    capability: tuple[int, int], known: tuple[int, ...], arch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiler, "supported_archs", lambda: known)
    assert arch_for(*capability) == arch


def test_a_gpu_that_nvrtc_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "supported_archs", lambda: (80, 90))
    with pytest.raises(ToolMissingError, match=r"does not know GPUs of compute capability 12\.0; pip install"):
        arch_for(12, 0)


def test_an_old_or_missing_nvrtc_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from cuda.bindings import nvrtc

    compiler.nvrtc_version.cache_clear()
    monkeypatch.setattr(nvrtc, "nvrtcVersion", lambda: (0, 12, 1))
    assert compiler.compiler_reason().startswith("NVRTC 12.1 is too old, the kernels need 12.8; pip install")

    def missing() -> None:
        raise RuntimeError("libnvrtc.so was not found")

    monkeypatch.setattr(nvrtc, "nvrtcVersion", missing)
    assert compiler.compiler_reason().startswith("NVRTC cannot be loaded: libnvrtc.so was not found; pip install")
    monkeypatch.setitem(sys.modules, "cuda.core", None)
    assert "cuda-core" in compiler.compiler_reason()
    monkeypatch.undo()
    compiler.nvrtc_version.cache_clear()
    assert compiler.compiler_reason() == ""


def test_names_and_reports_need_neither_torch_nor_cuda() -> None:
    code = (
        "import sys, yaie_cuda.kernel, yaie_cuda.catalog, yaie_cuda.compiler;"
        "print(sorted({name.split('.')[0] for name in sys.modules} & {'torch', 'cuda', 'numpy'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
