"""Texts that compile and are not the kernel that engines launch."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from yaie_cuda import sources
from yaie_cuda.catalog import all_kernels
from yaie_cuda.compiler import compile_kernel, compiler_reason
from yaie_cuda.emulator.build import emulator_reason
from yaie_cuda.lab.check import Check
from yaie_cuda.lab.entry import cubin_problem, sized, source_problem
from yaie_cuda.lab.request import CheckRequest
from yaie_cuda.specialisations.fused import silu_specialisation

pytestmark = pytest.mark.timeout(200)
NAME = "silu_and_mul"
SILU = sources.built_in(NAME)
ASSERT = "static_assert(sizeof(Params) == PARAMS_BYTES);\n"
HEAD = 'extern "C" __global__ void __launch_bounds__(THREADS) silu_and_mul('
MISSING = f'it defines no extern "C" __global__ void {NAME}(const __grid_constant__ Params p)'
compiled = pytest.mark.skipif(bool(compiler_reason()), reason=compiler_reason() or "NVRTC is here")
emulated = pytest.mark.skipif(bool(emulator_reason()), reason=emulator_reason() or "kernels can be emulated")


@pytest.fixture(autouse=True)
def _built_in_sources() -> Iterator[None]:
    yield
    sources.restore()


def edited(old: str, new: str) -> str:
    assert SILU.count(old) == 1
    return SILU.replace(old, new)


def problem(text: str, arch: str | None = None) -> dict[str, str]:
    """What a check says is wrong with all of `text`."""
    told: list[tuple[str, Any]] = []
    Check(CheckRequest(NAME, text, arch=arch, label="SCALAR=float16"), lambda *found: told.append(found)).run()
    found: list[dict[str, str]] = [data for kind, data in told if kind == "problem"]
    assert len(found) == 1, told
    return found[0]


@pytest.mark.parametrize("name", all_kernels())
def test_the_built_in_texts_have_nothing_against_them(name: str) -> None:
    text = sources.built_in(name)
    assert source_problem(name, text) == "" and sized(text) == text


@pytest.mark.parametrize(
    "line",
    [
        '#include "/tmp/own.cuh"',
        "#include <cstdlib>",
        '  #  include "../kernels/chunk.cuh"',
        '#include /* here */ "own.cuh"',
        '#inc\\\nlude "own.cuh"',
        "#include OWN",
        '%:include "own.cuh"',
        '#import "own.cuh"',
        '#embed "own.bin"',
        '#include "runtime.hpp"',
        '/* " */ \n#include "own.cuh"',
    ],
)
def test_other_files_are_refused_in_one_line(line: str) -> None:
    found = source_problem(NAME, f"{line}\n{SILU}")
    assert found.startswith("it includes ") and "no other file: candidates.cuh, chunk.cuh" in found
    assert "\n" not in found


@pytest.mark.parametrize("line", ['// #include "own.cuh"', '/*\n#include "own.cuh"\n*/', '#include "warp.cuh" // own'])
def test_our_headers_and_comments_are_not_refused(line: str) -> None:
    assert source_problem(NAME, f"{line}\n{SILU}") == ""


def test_a_file_that_changes_gives_no_old_verdict(tmp_path: Path) -> None:
    header = tmp_path / "own.cuh"
    header.write_text("#define FACTOR 1.0f\n", encoding="utf-8")
    text = f'#include "{header}"\n' + edited("silu * to_float", "FACTOR * silu * to_float")
    assert f'it includes "{header}"' in problem(text)["words"]


@pytest.mark.parametrize(
    "text",
    [
        "// nothing\n",
        "// " + SILU.replace("\n", "\n// "),
        SILU.replace('extern "C" ', ""),
        SILU.replace(") silu_and_mul(", ") other("),
        SILU.replace("__global__ ", ""),
    ],
)
def test_without_the_entry_point_it_says_so(text: str) -> None:
    assert problem(text)["words"] == MISSING


@compiled
@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_what_was_compiled_tells_entry_bounds_and_parameters(arch: str) -> None:
    wanted = silu_specialisation("float16", 8)

    def found(text: str) -> str:
        return cubin_problem(wanted, compile_kernel(wanted, arch, text).cubin)

    size = ctypes.sizeof(wanted.kernel.params)
    assert found(SILU) == found(edited("__launch_bounds__(THREADS) ", "")) == ""
    hidden = edited(HEAD, HEAD.replace('extern "C" ', "")) + '\nextern "C" __device__ int other;\n'
    assert source_problem(NAME, hidden) == "" and found(hidden) == MISSING
    assert found(edited("bounds__(THREADS)", "bounds__(32)")) == (
        f"its __launch_bounds__ allow 32 threads, and it is launched with {wanted.threads}"
    )
    more = edited("int32_t unused;", "int32_t unused; int64_t more;").replace(ASSERT, "")
    assert found(more) == f"it takes {size + 8} bytes of parameters and is given {size}"


@emulated
def test_larger_parameters_do_not_pass_without_the_assertion() -> None:
    more = edited("int32_t unused;", "int32_t unused; int64_t more;").replace(ASSERT, f"// {ASSERT}")
    found = problem(more)
    assert found["words"] == "it does not compile for the emulator"
    assert "Params must have the size of the built-in kernel's" in found["log"]


@compiled
@emulated
def test_a_check_says_what_is_wrong_with_what_was_compiled() -> None:
    assert "allow 32 threads" in problem(edited("bounds__(THREADS)", "bounds__(32)"), "sm_90")["words"]
