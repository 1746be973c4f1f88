"""What showing a generation costs the engine: one cell through the widget and with -q, in pairs, in a real kernel."""

from __future__ import annotations

import argparse
import ast
import os
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import Empty
from typing import Any

from benchmarks.kernel_pages import DISPLAY
from benchmarks.run_file import Begun

PAIRS, TOKENS = 9, 200
ORDER = ("-q", "", "", "-q", "", "-q", "-q", "")  # a pair: four of each, so that a machine that drifts hits both alike
SETUP = """
import threading, time
%load_ext yaie_magic
%yaie load tiny --num-blocks 256
def engine_time():
    found = next(thread for thread in threading.enumerate() if thread.name == "yaie-engine")
    return time.clock_gettime(time.pthread_getcpuclockid(found.ident))
"""
BEFORE = "began, engine_began = time.process_time(), engine_time()"
FIGURES = """
print((_yaie.timings.total, time.process_time() - began, engine_time() - engine_began, _yaie.usage.completion))
"""
SECONDS = 600


@dataclass
class Took:
    """Seconds of generations: by the engine's clock, on a processor (all threads), on one (the engine's thread)."""

    total: float = 0.0
    processor: float = 0.0
    engine: float = 0.0

    def __add__(self, other: Took) -> Took:
        return Took(self.total + other.total, self.processor + other.processor, self.engine + other.engine)

    @property
    def kept(self) -> float:
        """The share of its seconds in which the engine's thread stood still: for Python's lock or a processor."""
        return 1 - self.engine / self.total


class Kernel:
    """A kernel with a front end that reads everything and answers nothing.

    So the whole state travels once a second beside the messages: the dearer of the two cases.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self.messages = 0

    def run(self, code: str) -> str:
        """What a cell prints, after its end.

        Raises:
            RuntimeError: the cell failed.
        """
        sent = self._client.execute(code)
        printed: list[str] = []
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            try:
                message = self._client.get_iopub_msg(timeout=1)
            except Empty:
                continue
            kind, content = message["msg_type"], message["content"]
            self.messages += kind == "comm_msg"
            if message["parent_header"].get("msg_id") != sent:
                continue
            if kind == "error":
                raise RuntimeError(f"{content['ename']}: {content['evalue']}")
            if kind == "stream" and content["name"] == "stdout":
                printed.append(content["text"])
            if kind == "status" and content["execution_state"] == "idle":
                return "".join(printed)
        raise RuntimeError(f"a cell did not end within {SECONDS} s")

    def generate(self, tokens: int, options: str) -> Took:
        """What one generation took.

        Raises:
            RuntimeError: it ended early.
        """
        self.messages = 0
        self.run(BEFORE)
        self.run(f"%%generate -m {tokens} -t 0 --ignore-eos {options}\nOnce upon a time")
        *figures, made = ast.literal_eval(self.run(FIGURES))
        if made != tokens:
            raise RuntimeError(f"{made} tokens instead of {tokens}")
        return Took(*map(float, figures))


@contextmanager
def kernel() -> Iterator[Kernel]:
    """A kernel with the bundled model, on one thread: a second one gains a small model nothing."""
    from jupyter_client.manager import start_new_kernel

    environment = {**os.environ, "OMP_NUM_THREADS": "1", "YAIE_NOTEBOOK": "", "HF_HUB_OFFLINE": "1"}
    environment.pop("PYTEST_CURRENT_TEST", None)
    manager, client = start_new_kernel(kernel_name="python3", env=environment, startup_timeout=120)
    try:
        found = Kernel(client)
        found.run(SETUP)
        yield found
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def command(arguments: list[str]) -> int:
    """What the command line says."""
    parser = argparse.ArgumentParser(prog="benchmarks/display_cost", allow_abbrev=False)
    parser.add_argument("--out", type=Path, metavar="FILE", help="the figures as JSON too, for scripts/performance")
    given = parser.parse_args(arguments)
    run = Begun(DISPLAY.kind, ["benchmarks/display_cost", *arguments], os.getpid())
    found = main()
    if given.out is not None:
        run.write(given.out, {"shares": found, "tokens": TOKENS * ORDER.count("")})
    return 0


def main(pairs: int = PAIRS, tokens: int = TOKENS) -> dict[str, list[float]]:
    """Print one line for each pair, and the medians with their spread; the shares of each pair."""
    shares: dict[str, list[float]] = {"slower": [], "busier": [], "kept": []}
    with kernel() as found:
        for options in ("-q", ""):  # imports, and the prompt in the cache
            found.generate(tokens // 2 or 1, options)
        names = "".join(f"{name:>10}" for name in (*shares, "messages"))
        print(f"{'pair':>4}{'quiet tok/s':>14}{'shown tok/s':>14}{names}")
        for pair in range(1, pairs + 1):
            took, messages = {"-q": Took(), "": Took()}, 0
            for options in ORDER:
                took[options] += found.generate(tokens, options)
                messages += found.messages
            quiet, shown = took["-q"], took[""]
            shares["slower"].append(shown.total / quiet.total - 1)
            shares["busier"].append(shown.processor / quiet.processor - 1)
            shares["kept"].append(shown.kept - quiet.kept)
            made = tokens * ORDER.count("")
            line = "".join(f"{share[-1] * 100:9.1f}%" for share in shares.values())
            print(f"{pair:4}{made / quiet.total:14.1f}{made / shown.total:14.1f}{line}{messages:10}", flush=True)
    for name, found_shares in shares.items():
        middle, low, high = (f(found_shares) * 100 for f in (statistics.median, min, max))
        print(f"{name}: median {middle:.1f} %, from {low:.1f} to {high:.1f} %")
    return shares
