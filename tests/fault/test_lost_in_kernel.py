"""A device that is lost under a notebook: said in the cell and by the server, and `%yaie restart` brings it back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.notebook.kernel import Kernel

LOSE = """
from yaie_engine.fault_points import armed
def lose(*context):
    raise RuntimeError("CUDA error: an illegal memory access was encountered")
losing = armed("forward", lose)
losing.__enter__()
"""
HEALTH = (
    "import urllib.request, urllib.error\ndef health():\n    try:\n        return urllib.request.urlopen(url).status\n"
)
HEALTH += "    except urllib.error.HTTPError as error:\n        return error.code\n"


@pytest.fixture
def kernel() -> Iterator[Kernel]:
    found = Kernel(YAIE_NOTEBOOK="static")
    for code in ("%load_ext yaie_magic", "%yaie load tiny --num-blocks 64", "%yaie serve"):
        cell = found.run(code, timeout=240)
        assert cell.status == "ok", (cell.stderr, cell.error)
    found.run("from yaie_magic import serving; url = serving.server_of('default').url + '/health'")
    found.run(HEALTH)
    yield found
    found.close()


def test_a_lost_device_is_said_everywhere_and_a_restart_serves_again(kernel: Kernel) -> None:
    right = kernel.run("%%generate -m 8 -t 0\nHello", timeout=120)
    assert right.status == "ok" and right.text and kernel.value("health()") == 200
    kernel.run(LOSE)
    lost = kernel.run("%%generate -m 8 -t 0\nAnother", timeout=120)
    assert "the GPU was lost" in f"{lost.text}{lost.stderr}{lost.error}"
    assert kernel.value("health()") == 503
    assert "failed" in kernel.run("%yaie status").text
    kernel.run("losing.__exit__(None, None, None)")
    assert kernel.run("%yaie restart", timeout=240).status == "ok"
    again = kernel.run("%%generate -m 8 -t 0\nHello", timeout=120)
    assert again.status == "ok" and again.stdout == right.stdout
