"""What a busy Python thread in the kernel costs a generation: with the engine in the kernel, and with it detached."""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks import kernel_pages
from benchmarks.display import Kernel
from benchmarks.run_file import Begun

PAIRS, TOKENS = 5, 200
HERE, APART = kernel_pages.PLACES
IDLE, BUSY = kernel_pages.LOADS
NAMES = {HERE: "here", APART: "apart"}
SETUP = """
import threading, time
%load_ext yaie_magic
%yaie load tiny --num-blocks 256 --as here
%yaie load tiny --num-blocks 256 --as apart --detached --idle-timeout 900
stop = threading.Event()
def turn():
    count = 0
    while not stop.is_set():
        count += 1
"""
MAKE_BUSY = "stop.clear(); thread = threading.Thread(target=turn, daemon=True); thread.start()"
MAKE_IDLE = "stop.set(); thread.join()"
GENERATE = """
began = time.perf_counter()
get_ipython().run_cell_magic("generate", "-q -m {tokens} -t 0 --ignore-eos --engine {engine}", "Once upon a time")
seconds = time.perf_counter() - began
assert _yaie.usage.completion == {tokens}, _yaie
print(seconds)
"""
END = "%yaie unload apart"
Speeds = dict[tuple[str, str], list[float]]


@contextmanager
def kernel() -> Iterator[Kernel]:
    """A kernel with both engines, each on one thread: a second one gains a small model nothing."""
    from jupyter_client.manager import start_new_kernel

    with tempfile.TemporaryDirectory() as runtime:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "YAIE_NOTEBOOK": "", "HF_HUB_OFFLINE": "1"}
        environment["XDG_RUNTIME_DIR"] = runtime
        manager, client = start_new_kernel(
            kernel_name="python3", env=environment, startup_timeout=120, stderr=subprocess.DEVNULL
        )
        try:
            found = Kernel(client)
            found.run(SETUP)
            try:
                yield found
            finally:
                found.run(END)
        finally:
            client.stop_channels()
            manager.shutdown_kernel(now=True)


def speed(found: Kernel, place: str, tokens: int) -> float:
    """Tokens per second of one generation, by the clock of the cell that waits for it."""
    return tokens / float(found.run(GENERATE.format(tokens=tokens, engine=NAMES[place])))


def measure(pairs: int, tokens: int) -> Speeds:
    """All four cases in turns, in each pair in another order."""
    speeds: Speeds = {(place, load): [] for place in (HERE, APART) for load in (IDLE, BUSY)}
    with kernel() as found:
        for place in (HERE, APART):  # imports, and the prompt in the cache
            speed(found, place, tokens // 4 or 1)
        for pair in range(pairs):
            places = (HERE, APART) if pair % 2 == 0 else (APART, HERE)
            for place in places:
                speeds[place, IDLE].append(speed(found, place, tokens))
            found.run(MAKE_BUSY)
            for place in places:
                speeds[place, BUSY].append(speed(found, place, tokens))
            found.run(MAKE_IDLE)
            line = "".join(f"{speeds[case][-1]:12.1f}" for case in speeds)
            print(f"{pair + 1:4}{line}", flush=True)
    return speeds


def command(arguments: list[str]) -> int:
    """What the command line says."""
    parser = argparse.ArgumentParser(prog="benchmarks/detached_cost", allow_abbrev=False)
    parser.add_argument("--out", type=Path, metavar="FILE", help="the figures as JSON too, for scripts/performance")
    given = parser.parse_args(arguments)
    run = Begun(kernel_pages.DETACHED.kind, ["benchmarks/detached_cost", *arguments], os.getpid())
    speeds = main()
    if given.out is not None:
        run.write(given.out, {"speeds": speeds, "tokens": TOKENS})
    return 0


def main(pairs: int = PAIRS, tokens: int = TOKENS) -> dict[str, dict[str, list[float]]]:
    """Print tokens per second of each pair, and the table of docs/performance.md; the former by engine and load."""
    cases = [(place, load) for place in (HERE, APART) for load in (IDLE, BUSY)]
    print("pair" + "".join(f"{NAMES[place] + ' ' + load:>12}" for place, load in cases))
    speeds = measure(pairs, tokens)
    found = {place: {load: speeds[place, load] for load in (IDLE, BUSY)} for place in (HERE, APART)}
    print("", *kernel_pages.table(found), *kernel_pages.gains(found), sep="\n")
    return found
