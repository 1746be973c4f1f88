"""`%%kernel` in a Jupyter kernel: completion, help, progress that the result replaces, interrupts, the next cell."""

from __future__ import annotations

import shutil
import sys
from typing import Any

import pytest

from yaie_cuda import sources

SILU = sources.built_in("silu_and_mul")
ENDLESS = SILU.replace("    if (at >= p.width) return;\n", "    while (at >= 0) __syncwarp();\n")
pytestmark = pytest.mark.timeout(280)
emulated = pytest.mark.skipif(
    shutil.which("g++") is None or sys.platform != "linux", reason="kernels are emulated by g++"
)


@pytest.mark.parametrize(
    ("code", "offered"),
    [
        ("%%kernel sil", {"silu_and_mul"}),
        ("%%kernel ", {"silu_and_mul", "rms_norm", "--use"}),
        ("%%kernel silu_and_mul --s", {"--spec", "--sanitize"}),
        ("%%kernel silu_and_mul --arch sm_8", {"sm_80", "sm_86", "sm_89"}),
        ("%%kernel silu_and_mul --spec WIDTH", {"WIDTH=8", "WIDTH=4"}),
        ("%yaie kernels re", {"reset", "reshape_and_cache"}),
        ("%yaie kernels --", {"--arch", "--json"}),
        ("%yaie ker", {"kernels"}),
    ],
)
def test_names_and_options_are_completed(fake_kernel: Any, code: str, offered: set[str]) -> None:
    assert offered <= set(fake_kernel.complete(code))


def test_a_name_is_offered_once(fake_kernel: Any) -> None:
    assert "rms_norm" not in fake_kernel.complete("%%kernel silu_and_mul ")


def test_help_is_the_same_everywhere(fake_kernel: Any) -> None:
    shown = fake_kernel.run("%%kernel --help").stdout
    assert "usage: %%kernel [NAME] [options]" in shown and "--sanitize" in shown
    assert "--sanitize" in fake_kernel.inspect("%%kernel") and "%%kernel" in fake_kernel.run("%yaie help").stdout
    assert "--arch" in fake_kernel.run("%yaie kernels --help").stdout


def test_the_next_cell_is_offered(fake_kernel: Any) -> None:
    msg = fake_kernel.client.execute("%%kernel silu_and_mul --edit", reply=False)
    while (reply := fake_kernel.client.get_shell_msg(timeout=60))["parent_header"].get("msg_id") != msg:
        continue
    (payload,) = [each for each in reply["content"]["payload"] if each["source"] == "set_next_input"]
    assert payload["text"] == f"%%kernel silu_and_mul\n{SILU}" and not payload["replace"]


@emulated
def test_progress_becomes_the_result(fake_kernel: Any) -> None:
    cell = fake_kernel.run(f"%%kernel silu_and_mul --spec SCALAR=float16 -o mine\n{SILU}", timeout=200)
    assert cell.status == "ok", cell.error
    assert len(cell.displays) == 1 and cell.result is None
    assert any("compiling" in text for text in cell.shown)
    final = cell.displays[0]
    assert final["text/plain"].startswith("silu_and_mul · passed") and "built-in" in final["text/plain"]
    assert "Emulated on the CPU: these times say nothing about a GPU." in final["text/plain"]
    assert "<table" in final["text/html"] and "<script" not in final["text/html"]
    assert fake_kernel.value("mine.ok and Out[max(Out)] is mine")


@emulated
def test_an_interrupt_ends_the_check_at_once(fake_kernel: Any) -> None:
    cell = fake_kernel.send(f"%%kernel silu_and_mul --spec SCALAR=float16 --timeout 200\n{ENDLESS}")
    fake_kernel.until(cell, lambda cell: any("1 x 256 float16" in text for text in cell.shown), timeout=200)
    pressed = fake_kernel.interrupt()
    fake_kernel.finish(cell)
    assert cell.finished - pressed < 3
    assert cell.error is not None and "the check of silu_and_mul was interrupted" in "".join(cell.error["traceback"])
    assert fake_kernel.value("session.get().alive")
    left = fake_kernel.run(
        "import subprocess; print(subprocess.run(['ps', '-eo', 'args'], capture_output=True, text=True).stdout)"
    )
    assert "yaie_cuda.lab.worker" not in left.stdout


def test_the_list_of_kernels_is_a_table(fake_kernel: Any) -> None:
    cell = fake_kernel.run("%yaie kernels copy_blocks", timeout=120)
    assert cell.status == "ok", cell.error
    assert "1 specialisation of 1 kernel" in cell.text and "<table" in str(cell.displays)
