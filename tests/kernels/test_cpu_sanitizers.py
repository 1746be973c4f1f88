"""The CPU kernels under sanitizers: random shapes in buffers of the exact size, with more threads than cores.

Threads are looked at on a small OpenMP of our own (cpu_threads.cpp). Planted mistakes show that each sanitizer looks.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from yaie_cuda.cpu import build

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(bool(build.unbuildable_reason()), reason=build.unbuildable_reason()),
]
HERE = Path(__file__).parent
ADDRESS = ("-fopenmp", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-D_GLIBCXX_SANITIZE_VECTOR")
NARROW = ("-mno-avx512f",)
"""A CPU without the wide vectors."""
PLANTED = {
    "buffer-overflow": ("linear.hpp", "memcpy(to, whole, left * sizeof(T))", "memcpy(to, whole, PANEL * sizeof(T))"),
    "data race": ("decode.hpp", "schedule(dynamic, 1)\n", "schedule(dynamic, 1) nowait\n"),
}


def program(folder: Path, sanitizer: str, machine: tuple[str, ...] = (), sources: Path = build.HERE) -> list[str]:
    """Build the driver on the kernels in `sources`; the command that runs it."""
    made, base = str(folder / "driver"), ["g++", *build.FLAGS[:3], "-O1", "-g", "-w", *machine, f"-I{sources}"]
    driver, threads = str(HERE / "cpu_driver.cpp"), str(HERE / "cpu_threads.cpp")
    if sanitizer == "address":
        commands = [[*base, *ADDRESS, driver, "-o", made]]
    else:
        commands = [
            [*base, "-fopenmp", "-fsanitize=thread", "-c", driver, "-o", f"{made}.o"],
            [*base, "-fsanitize=thread", threads, f"{made}.o", "-o", made],
        ]
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
    return [made]


def run(command: list[str], rounds: int) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "4"}
    return subprocess.run(
        [*command, str(rounds), "4"], capture_output=True, text=True, timeout=250, env=environment, check=False
    )


@pytest.mark.parametrize("machine", [(), NARROW], ids=["this CPU", "without AVX-512"])
@pytest.mark.parametrize("sanitizer", ["address", "thread"])
def test_nothing_is_found(tmp_path: Path, sanitizer: str, machine: tuple[str, ...]) -> None:
    done = run(program(tmp_path, sanitizer, machine), 60)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr[-3000:]


@pytest.mark.parametrize("found", PLANTED)
def test_a_planted_mistake_is_found(tmp_path: Path, found: str) -> None:
    file, right, wrong = PLANTED[found]
    sources = tmp_path / "sources"
    shutil.copytree(build.HERE, sources)
    text = (sources / file).read_text(encoding="utf-8")
    assert right in text
    (sources / file).write_text(text.replace(right, wrong), encoding="utf-8")
    done = run(program(tmp_path, "thread" if found == "data race" else "address", (), sources), 60)
    assert done.returncode != 0 and found in done.stderr


def test_a_cpu_without_wide_vectors_gives_the_same(tmp_path: Path) -> None:
    """The tests of the kernels and of int8, on a library that is built without AVX-512."""
    code = (
        "import sys, pytest\n"
        "from yaie_cuda.cpu import build\n"
        f"build.FLAGS = (*build.FLAGS, *{NARROW!r})\n"
        "sys.exit(pytest.main(['-n0', '-q', '-p', 'no:cacheprovider', '-k', 'not long_context', *sys.argv[1:]]))"
    )
    root = HERE.parents[1]
    command = [sys.executable, "-c", code, str(HERE / "test_cpu_kernels.py"), str(root / "tests/engine/test_int8.py")]
    environment = {**os.environ, "PYTHONPATH": str(root), "YAIE_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout
