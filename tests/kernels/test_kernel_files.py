"""Rules of the kernel sources: where device and emulator may differ, what a source holds, how long it is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from yaie_cuda.catalog import all_kernels, all_specialisations, ci_specialisations
from yaie_cuda.emulator.build import HERE
from yaie_cuda.kernel import SOURCES, Kernel, Specialisation

TWO_WORLDS = {"warp.cuh", "numeric.cuh"}
FILES = sorted([*SOURCES.glob("*.cu"), *SOURCES.glob("*.cuh")])
DIFFERENCE = re.compile(r"__CUDACC|__CUDA_ARCH__|\bemu\b|\bEMU_|__GNUC__|__clang__|#\s*if(n?def)?\b")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_device_and_emulator_differ_in_two_headers_only(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    found = [f"{path.name}:{i}: {line}" for i, line in enumerate(lines, 1) if DIFFERENCE.search(line)]
    if path.name in TWO_WORLDS:
        assert any("__CUDACC_RTC__" in line for line in found)
    else:
        assert found == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_source_includes_our_headers_only(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    included = re.findall(r'#\s*include\s*[<"]([^>"]+)[>"]', text)
    own = {file.name for file in FILES} | ({"intrinsics.hpp"} if path.name == "numeric.cuh" else set())
    assert set(included) <= own


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_lambda_has_auto_parameters(path: Path) -> None:
    """NVRTC 13.0 refuses generic lambdas ("a function parameter may not be auto"), later ones take them."""
    assert generic_lambdas(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("head", ["[&](int row, auto make)", "[=] (auto x)", "[this, &x](const auto& x, int y)"])
def test_a_lambda_with_auto_parameters_is_found(head: str) -> None:
    assert generic_lambdas(f"auto f = {head} {{ return 1; }};") == [head]
    assert generic_lambdas("const auto f = [&](int x) { const auto y = a[x](z); };") == []


def generic_lambdas(text: str) -> list[str]:
    """The heads of lambdas that are templates, comments left out."""
    return re.findall(r"\[[^\[\]]*\]\s*\([^(){}]*\bauto\b[^(){}]*\)", re.sub(r"//.*", "", text))


@pytest.mark.parametrize("path", [*FILES, *sorted(HERE.glob("*.?pp"))], ids=lambda path: path.name)
def test_no_file_is_longer_than_400_lines_or_wider_than_120_columns(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 400
    assert [i for i, line in enumerate(lines, 1) if len(line) > 120] == []


def test_every_source_is_a_kernel_of_the_catalogue() -> None:
    assert {path.stem for path in SOURCES.glob("*.cu")} == set(all_kernels())


@pytest.mark.parametrize("kernel", all_kernels().values(), ids=lambda kernel: kernel.name)
def test_a_source_has_one_entry_whose_struct_python_knows(kernel: Kernel) -> None:
    text = re.sub(r"//.*", "", kernel.path.read_text(encoding="utf-8"))
    entries = re.findall(r"__global__\s+void\s+__launch_bounds__\(THREADS[^)]*\)\s+(\w+)", text)
    assert entries == [kernel.name]
    assert "static_assert(sizeof(Params) == PARAMS_BYTES);" in text
    body = re.search(r"struct Params \{(.*?)\n\};", text, re.DOTALL)
    assert body is not None
    declared = [
        name
        for declaration in body[1].split(";")
        for name in re.findall(r"(\w+)\s*(?:,|$)", re.sub(r"\s+", " ", declaration).strip())
    ]
    assert declared == [name for name, _ in kernel.fields]


def test_the_ci_set_is_a_small_part_of_everything_and_knows_every_kernel() -> None:
    chosen, every = ci_specialisations(), all_specialisations()
    assert set(chosen) <= set(every)
    assert {one.kernel.name for one in chosen} == set(all_kernels())
    assert len({one.label for one in every}) == len(every), "labels tell specialisations apart"


class TestKernel:
    """The struct and the macros of a kernel, as Python sees them."""

    def test_fields_left_out_are_zero_and_unknown_ones_an_error(self) -> None:
        kernel = Kernel("k", (("a", "p"), ("n", "i"), ("x", "f")))
        params = kernel.params(n=3)
        assert (params.a, params.n, params.x) == (None, 3, 0.0)
        with pytest.raises(AttributeError):
            kernel.params(m=3)
        with pytest.raises(AttributeError):
            params.m = 3

    @pytest.mark.parametrize("fields", [(("n", "i"), ("a", "p")), (("a", "p"), ("n", "i"))])
    def test_padding_is_refused(self, fields: tuple[tuple[str, str], ...]) -> None:
        with pytest.raises(ValueError, match="k: the struct has padding"):
            Kernel("k", fields)

    def test_names_and_codes_are_checked(self) -> None:
        with pytest.raises(ValueError, match="codes are p, q, i, f"):
            Kernel("k", (("a", "d"),))
        with pytest.raises(ValueError, match="not an identifier"):
            Kernel("k-1", ())

    def test_a_specialisation(self) -> None:
        kernel = Kernel("k", (("a", "p"), ("n", "q")))
        one = kernel.specialise(64, 128, SCALAR="bfloat16", BLOCK=16)
        assert one.label == "k[BLOCK=16 SCALAR=bfloat16]"
        assert one.macros == (("BLOCK", "16"), ("SCALAR", "bfloat16"), ("PARAMS_BYTES", "16"), ("THREADS", "64"))
        assert one == Specialisation(kernel, (("BLOCK", "16"), ("SCALAR", "bfloat16")), 64, 128)
        assert hash(one) == hash(kernel.specialise(64, 128, BLOCK=16, SCALAR="bfloat16"))
        with pytest.raises(ValueError, match="sorted"):
            Specialisation(kernel, (("B", "1"), ("A", "1")), 64)
        with pytest.raises(ValueError, match="1025 threads; 1 to 1024"):
            kernel.specialise(1025)
