"""Row 9: processes that load the extension twice, reload it, fork and end, and a kernel that is restarted."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, Any

import psutil

from tests.notebook.kernel import Kernel

from .figure import Figure, slowest

HANGS_S = 180.0
LONG = "-b -m 900 --ignore-eos"
"""A request that goes on in the background; it fits into 64 blocks."""
PROGRAM = """
import os, sys, threading, time
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
def run(code):
    done = shell.run_cell(code)
    done.raise_error()
run("%load_ext yaie_magic")
from yaie_magic.session import session
run("%yaie load tiny --num-blocks 64")
run("%%generate -m 4 -t 0 -o first\\nOnce upon a time")
def settle():  # a restart or sleep refuses over running work
    session.get().llm.cancel()
    end = time.monotonic() + 30
    while any("follow" in t.name for t in threading.enumerate()) and time.monotonic() < end:
        time.sleep(0.01)
for code in {codes}:
    settle()
    run(code)
run("%%generate -m 4 -t 0 -o second\\nOnce upon a time")
assert shell.user_ns["first"].tokens == shell.user_ns["second"].tokens
settle()
names = sorted(t.name for t in threading.enumerate() if t.name.startswith("yaie"))
assert names in (["yaie-engine"], ["yaie-engine", "yaie-server"]), names
child = os.fork()
if child == 0:  # the copy has no engine thread: it must end at once and leave the parent's engine alone
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
run("%%generate -m 4 -t 0 -o third\\nOnce upon a time")
assert shell.user_ns["third"].tokens == shell.user_ns["second"].tokens
{end}
print("reached the end", time.time(), flush=True)
"""
CODES = [
    "%load_ext yaie_magic",
    "%reload_ext yaie_magic",
    "%yaie load tiny --num-blocks 64",
    "%yaie restart",
    "%yaie sleep\nget_ipython().run_line_magic('yaie', 'wake')",
    "%yaie serve --port 0",
    f"%%generate {LONG} -o late\nlong",
]
ENDS = ["run('%yaie unload')", "run('%unload_ext yaie_magic')", "", f"run('%%generate {LONG} -o late\\nlong')"]


def started_in(folder: Path) -> list[psutil.Process]:
    """The processes whose folder for temporary files this is. Children whose parent has ended are nobody's children."""
    found = []
    for each in psutil.process_iter():
        try:
            if each.environ().get("TMPDIR") == str(folder) and each.status() != psutil.STATUS_ZOMBIE:
                found.append(each)
        except psutil.Error:  # it has ended, or is of another user
            continue
    return found


def leftovers(folder: Path) -> list[str]:
    """Files in the folder for temporary ones, and processes that were started in it and still run; they are ended."""
    files = [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]
    alive = started_in(folder)
    for each in alive:
        each.kill()
    return [f"file {name}" for name in files] + [f"process {each.name()}" for each in alive]


def program(chance: random.Random, seconds: list[float]) -> list[str]:
    """One process of its own; what is wrong with its end or after it."""
    codes = chance.sample(CODES, chance.randrange(2, 5))
    text = PROGRAM.format(codes=codes, end=chance.choice(ENDS))
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        own = {"TMPDIR": name, "IPYTHONDIR": str(Path(name) / "ipython"), "YAIE_NOTEBOOK": "static"}
        # Into files: of a pipe there is no end as long as a process that was left behind holds it.
        command, environment = [sys.executable, "-c", text], {**os.environ, **own}
        done = subprocess.run(command, env=environment, stdout=out, stderr=err, check=False, timeout=HANGS_S)
        ended = time.time()
        stdout, stderr, lost = _text(out), _text(err), leftovers(Path(name))
        told = [line for line in stdout.splitlines() if line.startswith("reached the end")]
        if done.returncode != 0 or not told:
            return [f"{codes}: ended with {done.returncode}: {(stderr or stdout)[-300:]}"]
        seconds.append(ended - float(told[0].split()[-1]))
        faults = [f"{codes}: left {left}" for left in lost if "ipython" not in left]
        return faults + ([f"{codes}: said {stderr[-300:]}"] if "Traceback" in stderr or "leaked" in stderr else [])


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "replace").strip()


def kernel_restart(seconds: list[float]) -> list[str]:
    """A kernel with a server and a running request is restarted: the old process goes, the new one works."""
    kernel = Kernel()
    try:
        for turn in range(2):
            kernel.run("%load_ext yaie_magic\nimport os")
            loaded: Any = kernel.run("%yaie load tiny --num-blocks 64", timeout=HANGS_S)
            if loaded.status != "ok":
                return [f"turn {turn}: the model did not load: {loaded.stderr}"]
            begun: Any = kernel.run(f"%yaie serve --port 0\nget_ipython().run_cell_magic('generate', {LONG!r}, 'x')")
            if begun.status != "ok":
                return [f"turn {turn}: nothing runs: {begun.stderr}"]
            process = psutil.Process(kernel.value("os.getpid()"))
            start = time.monotonic()
            kernel.manager.restart_kernel()
            kernel.client.wait_for_ready(timeout=HANGS_S)
            seconds.append(time.monotonic() - start)
            if process.is_running() and process.pid != kernel.manager.provisioner.pid:
                return [f"turn {turn}: the old kernel {process.pid} still runs"]
        return []
    finally:
        kernel.close()


def restarts(size: int, seed: int) -> Figure:
    """`size` turns: a process that ends by itself each, and a kernel restart at every third."""
    chance, faults = random.Random(seed), list[str]()
    ended, restarted = list[float](), list[float]()
    for number in range(size):
        faults += program(chance, ended)
        if number % 3 == 0:
            faults += kernel_restart(restarted)
    told = f"from the last line to the end: {slowest(ended)}; kernel restart: {slowest(restarted)}"
    done = f"{size} processes, {len(restarted)} restarts"
    return Figure(done, f"{len(faults)} faults", tuple(faults), told)
