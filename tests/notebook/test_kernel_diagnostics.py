"""Compilers' messages, with lines counted as in the cell."""

from __future__ import annotations

from yaie_magic.lab.diagnostics import errors_first, read_log

NVRTC = """silu.cu(2): error: identifier "undefined_name" is undefined
  __device__ int helper(int a) { return a + undefined_name; }
                                            ^

silu.cu(4): warning #177-D: variable "x" was declared but never referenced
    float x = p[threadIdx.x]
          ^

Remark: The warnings can be suppressed with "-diag-suppress <warning-number>"

chunk.cuh(7): error: expected a ";"

2 errors detected in the compilation of "silu.cu".
"""
GCC = """silu.cu: In function 'void silu(Params)':
silu.cu:26:22: error: 'nothing' was not declared in this scope
   26 |     const float x = nothing;
      |                     ^~~~~~~
"""


def test_nvrtc_lines_have_their_source_and_caret() -> None:
    first, warning, header = read_log(NVRTC)
    assert first.lines("silu.cu") == [
        'line 2 (line 3 of the cell): error: identifier "undefined_name" is undefined',
        "    __device__ int helper(int a) { return a + undefined_name; }",
        "                                              ^",
    ]
    assert (warning.kind, warning.line, warning.caret) == ("warning", 4, 8)
    assert header.lines("silu.cu") == ['chunk.cuh line 7: error: expected a ";"']


def test_gcc_lines_have_their_source_and_caret() -> None:
    (found,) = read_log(GCC)
    assert found.lines("silu.cu") == [
        "line 26 (line 27 of the cell): error: 'nothing' was not declared in this scope",
        "    const float x = nothing;",
        "                    ^",
    ]


def test_errors_come_before_warnings() -> None:
    assert [each.kind for each in errors_first(read_log(NVRTC))] == ["error", "error"]
    assert [each.kind for each in errors_first(read_log(NVRTC)[1:2])] == ["warning"]
    assert errors_first(read_log("nothing of that kind")) == []
