"""`%%kernel` in a plain shell: emulated checks of right, wrong, crashing and endless kernels, and the swap."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from shell_run import Run

from yaie_cuda import sources
from yaie_engine import kernel_exchange
from yaie_engine.kernel_exchange import ModelSizes
from yaie_magic.lab.result import KernelResult
from yaie_magic.session import session

pytestmark = [
    pytest.mark.timeout(280),
    pytest.mark.skipif(shutil.which("g++") is None or sys.platform != "linux", reason="kernels are emulated by g++"),
]
SILU = sources.built_in("silu_and_mul")
BOUND = "    if (at >= p.width) return;\n"


@pytest.fixture(autouse=True)
def built_in_kernels() -> Iterator[None]:
    yield
    sources.restore()


def edited(old: str, new: str) -> str:
    assert SILU.count(old) == 1
    return SILU.replace(old, new)


def check(run: Run, body: str, options: str = "--spec SCALAR=float16") -> KernelResult:
    """Run the cell; the float16 case alone builds one specialisation."""
    result = run(f"%%kernel silu_and_mul {options}\n{body}").result
    assert isinstance(result, KernelResult), run.err
    return result


def test_the_built_in_kernel_is_right_and_the_result_says_everything(run: Run) -> None:
    result = check(run, SILU, "--spec SCALAR=float16 -o kept")
    assert result is run["kept"] is run.shell.user_ns["Out"][run.shell.execution_count - 1]
    assert result.ok and result.problem == "" and result.device == "emulated" and not result.used
    report = result.report
    if report is not None:  # no NVRTC: not compiled for a GPU, and that is said
        assert report["registers"] > 0 and report["spill_bytes"] == 0 and report["arch"] == "sm_90"
    assert result.error is not None and result.error.relative_error <= result.error.tolerance
    assert [set(times) for times in result.times.values()] == [{"yours", "built_in"}]
    assert "passed" in run.out and " µs" not in run.out and " ms" not in run.out


def test_one_off_is_caught_with_the_first_wrong_element(run: Run) -> None:
    result = check(run, edited("at >= p.width", "at >= p.width - WIDTH"))
    assert not result.ok and result.error is not None and result.error.index == (0, 248)
    assert "out[0, 248] is nan and should be" in run.out and "8 of 256 elements are wrong" in run.out


def test_a_write_past_the_end_is_caught(run: Run) -> None:
    result = check(run, edited(BOUND, ""))
    assert not result.ok and "it writes outside of out, which has 256 elements" in result.problem


def test_a_source_that_does_not_compile_shows_line_and_caret(run: Run) -> None:
    result = check(run, edited("const int64_t row = blockIdx.x;", "const int64_t row = nothing;"))
    assert not result.ok and result.cases == ()
    line = SILU.splitlines().index("    const int64_t row = blockIdx.x;") + 1
    assert f"line {line} (line {line + 1} of the cell): error:" in run.out
    shown = run.out.splitlines()
    at = next(index for index, text in enumerate(shown) if text.strip() == "const int64_t row = nothing;")
    assert shown[at + 1].index("^") == shown[at].index("nothing")


def test_bad_memory_and_divergent_barriers_are_messages(run: Run) -> None:
    wild = check(run, edited("p.out + row", "p.out + (1ll << 45) + row"))
    assert "access to bad address" in wild.problem
    torn = check(run, edited(BOUND, f"{BOUND}    if (threadIdx.x < 7) __syncthreads();\n"))
    assert "__syncthreads" in torn.problem and "of the cell)" in torn.problem
    assert check(run, SILU).ok


def test_an_endless_kernel_is_stopped_and_nothing_is_left(run: Run) -> None:
    result = check(run, edited(BOUND, "    while (at >= 0) __syncwarp();\n"), "--spec SCALAR=float16 --timeout 2")
    assert "it did not end within 2 s and was stopped" in result.problem
    left = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert "yaie_cuda.lab.worker" not in left
    assert run("%%generate -m 2\nhello").error is None


def test_the_sanitizer_names_the_line(run: Run) -> None:
    result = check(run, edited("+ p.width)", "+ p.width + WIDTH)"), "--spec SCALAR=float16 --sanitize")
    assert "it touches memory outside of its tensors (found by the address sanitizer)" in result.problem
    assert " bytes\n    in load_chunk, chunk.cuh line " in run.out and "in silu_and_mul, line " in run.out


def test_without_a_compiler_it_says_what_to_install(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    result = check(run, SILU)
    assert not result.ok and "neither g++ nor clang++ is installed" in result.problem


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", "say which kernel: apply_penalties, "),
        ("silu", "unknown kernel 'silu'; did you mean silu_and_mul?"),
        ("silu_and_mul --arch sm_91", "--arch 'sm_91' is not one of sm_80"),
        ("silu_and_mul --timeout 0", "--timeout '0': give a number of seconds above 0"),
        ("silu_and_mul --timeout soon", "--timeout 'soon'"),
        ("silu_and_mul --edit", "--edit shows the built-in source"),
        ("silu_and_mul --us", "unknown option '--us'; did you mean '--use'?"),
        ("silu_and_mul --use --spec WIDTH=8", "--use is for a kernel that passed every case; leave out --spec"),
        ("silu_and_mul -o 3x", "is not a Python name"),
        ("silu_and_mul --use", "--use: tiny runs attention 'reference' and no kernels; load one that does: %yaie load"),
    ],
)
def test_a_wrong_line_is_one_line(run: Run, line: str, words: str) -> None:
    run(f"%%kernel {line}\n{SILU}")
    assert run.err.count("\n") == 1 and words in run.err, run.err


def test_use_without_an_engine_says_what_to_load(run: Run) -> None:
    run("%yaie unload")
    assert (
        "%yaie load tiny --dtype bfloat16 --attention-backend emulated"
        in run(f"%%kernel silu_and_mul --use\n{SILU}").err
    )
    assert "--use needs a source" in run("%%kernel silu_and_mul --use").err


def test_without_a_body_the_source_is_shown(run: Run) -> None:
    source = run("%%kernel silu_and_mul").result
    assert str(source) == SILU and SILU.rstrip() in run.out
    assert "Chunks: a few equal values" in run.out and "numeric.cuh" in run.out
    html = source._repr_mimebundle_()["text/html"]
    assert '<span class="k">const</span>' in html and "#include &lt;" not in html and "&lt;SCALAR" in html


def test_edit_offers_the_source_as_the_next_cell(run: Run) -> None:
    run("%%kernel silu_and_mul --edit")
    assert run.shell.rl_next_input == f"%%kernel silu_and_mul\n{SILU}" and run.out == ""


def test_a_checked_kernel_runs_in_the_engine_until_the_reset(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # the real engine
    monkeypatch.setenv("YAIE_NOTEBOOK", "static")
    run("%yaie load tiny --dtype bfloat16 --attention-backend emulated --num-blocks 32 --force")
    assert run.error is None, run.err
    first = run("%%generate -m 2 -t 0 --ignore-eos\nOnce upon a time").result.tokens
    running = run("%%generate -m 24 -t 0 --ignore-eos -b -q\nThe swaps below take place between its steps").result
    wrong = check(run, edited("1.0f + expf", "2.0f + expf"), "--use")
    assert not wrong.used and "Not used: tiny goes on with the built-in kernel." in run.out
    assert sources.replaced() == ()
    mine = edited("x / (1.0f + expf(-x))", "0.5f * x * (1.0f + tanhf(0.5f * x))")
    used = check(run, mine, "--use")
    assert used.ok and used.used and sources.replaced() == ("silu_and_mul",), used
    assert "from its next step on" in used.fate
    assert run("%%generate -m 2 -t 0 --ignore-eos\nOnce upon a time").result.tokens == first
    assert "default (emulated)" in run("%yaie kernels silu_and_mul").out and "replaced: silu_and_mul" in run.out
    assert "This is the replacement that runs now" in run("%%kernel silu_and_mul").out
    assert run("%yaie kernels reset").out == "silu_and_mul: the built-in again, from the next step on.\n"
    assert sources.replaced() == ()
    assert run("%%generate -m 2 -t 0 --ignore-eos\nOnce upon a time").result.tokens == first
    assert len(running.wait(200).tokens) == 24 and running.error is None
    # It passes, as no case has so many rows; in the engine it fails the one request and nothing else.
    torn = edited(BOUND, f"{BOUND}    if (gridDim.x > 5 && threadIdx.x < 7) __syncthreads();\n")
    assert check(run, torn, "--use").used
    run("%%generate -m 2 -t 0\nThis prompt has more than five tokens, and none of them is cached")
    assert "__syncthreads" in str(run.error) and session.get().alive
    run("%yaie kernels reset")
    assert run("%%generate -m 2 -t 0 --ignore-eos\nOnce upon a time").result.tokens == first
    # The source is the process's own: what an engine beside the session's needs is checked too.
    beside = ModelSizes("bfloat16", 2, 1, 64, 16, 128, 320, 900)
    monkeypatch.setattr(kernel_exchange, "model_sizes", lambda _: beside)
    tripled = edited("silu * to_float", "(p.width == 320 ? 3.0f : 1.0f) * silu * to_float")
    assert not check(run, tripled, "--use").used and sources.replaced() == ()
    assert "1 x 320 bfloat16, as in the engine: out[0, " in run.out
    session.get().llm.check()


def test_the_example_begins_with_the_kernels_as_they_are() -> None:
    """Its other cells are edits of these sources: when this fails, make them anew from the built-in ones."""
    notebook = json.loads((Path(__file__).parents[2] / "examples" / "03_kernel_lab.ipynb").read_text(encoding="utf-8"))
    bodies = ["".join(cell["source"]).partition("\n")[2].strip() for cell in notebook["cells"] if cell["source"]]
    assert SILU.strip() in bodies
    norm = sources.built_in("rms_norm").strip()
    assert norm.replace("        __syncthreads();\n", "") in bodies and norm != norm.replace("__syncthreads", "")


def test_the_list_says_why_no_engine_uses_a_kernel(run: Run) -> None:
    shown = run("%yaie kernels copy_blocks").out
    assert "tiny runs attention 'reference', without kernels; for instance %yaie load tiny --dtype bfloat16" in shown
    assert "unknown kernel 'copy'; did you mean copy_blocks?" in run("%yaie kernels copy").err
    assert "kernels reset restores every kernel and takes no names" in run("%yaie kernels reset copy_blocks").err
    assert run("%yaie kernels copy_blocks --json").result[0]["name"] == "copy_blocks"
