"""Compilers' and sanitizers' messages, with lines counted as in the cell; and how sources and results show."""

from __future__ import annotations

from pathlib import Path

from yaie_magic.lab.diagnostics import errors_first, name_lines, read_log
from yaie_magic.lab.result import KernelResult
from yaie_magic.lab.sanitizers import read_report
from yaie_magic.lab.source import Header, KernelSource, headers_of

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


def test_places_are_counted_as_in_the_cell() -> None:
    words, lines = name_lines("rms_norm.cu:34: thread (1,0,0): ended; chunk.cuh:3", "rms_norm.cu")
    assert words == "line 34 (line 35 of the cell): thread (1,0,0): ended; chunk.cuh:3" and lines == [34]


RACE = """==12==WARNING: ThreadSanitizer: data race (pid=12)
  Write of size 4 at 0x7fff by thread T36:
    #0 row_sum(float) /somewhere/rms_norm.cu:2 (rms_norm-5c9e+0x296a)
    #1 rms_norm rms_norm.cu:3 (rms_norm-5c9e+0x296a)
  Previous read of size 4 at 0x7fff by thread T35:
    #0 Chunk<float, 1> load_chunk<1, float>(float const*) chunk.cuh:13 (rms_norm-5c9e+0x29b0)
  Location is TLS of thread T1.
    #0 pthread_create ../../../../src/libsanitizer/tsan/tsan_interceptors_posix.cpp:1001
"""


def test_a_race_names_both_accesses() -> None:
    words, lines = read_report("data race at rms_norm.cu:2", RACE, "rms_norm.cu", ["", "x = 1;", "row_sum(x);"])
    assert words.startswith("a data race: two threads touch the same memory")
    assert lines == [
        "write of 4 bytes",
        "    in row_sum, line 2 (line 3 of the cell): x = 1;",
        "    in rms_norm, line 3 (line 4 of the cell): row_sum(x);",
        "before it, by another thread: read of 4 bytes",
        "    in load_chunk, chunk.cuh line 13",
    ]


def test_undefined_behaviour_names_its_line() -> None:
    verdict = "rms_norm.cu:2:7: runtime error: index 8 out of bounds for type 'float [8]'"
    words, lines = read_report(verdict, "", "rms_norm.cu", ["", "a[8] = 1;"])
    assert words == "index 8 out of bounds for type 'float [8]'"
    assert lines == ["    line 2 (line 3 of the cell): a[8] = 1;"]


def test_nothing_of_a_source_or_a_log_is_markup() -> None:
    evil = '<script>alert("x")</script>'
    source = KernelSource("k", f'// {evil}\nint x = "{evil}";\n', (Header("h.cuh", evil),), True, None, evil)
    log = f"k.cu(1): error: {evil}\n  {evil}\n  ^\n"
    result = KernelResult("k", "emulated", "sm_90", reason=evil, log=log, text=evil, fate=evil)
    for shown in (source, result):
        html = shown._repr_mimebundle_()["text/html"]
        assert "<script" not in html and "&lt;script&gt;" in html


def test_headers_are_found_through_each_other(tmp_path: Path) -> None:
    (tmp_path / "a.cuh").write_text('// Adds: numbers. And more.\n#include "b.cuh"\n')
    (tmp_path / "b.cuh").write_text('#include "a.cuh"\n#include <cmath>\n')
    found = headers_of('#include "a.cuh"\n#include "../secret.cuh"\n', tmp_path)
    assert found == [Header("a.cuh", "Adds: numbers"), Header("b.cuh", "")]
