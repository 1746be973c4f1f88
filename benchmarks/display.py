"""What showing a generation costs the engine: one cell through the widget and with -q, in pairs, in a real kernel."""

from __future__ import annotations

import ast
import os
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Empty
from typing import Any

PAIRS, TOKENS = 9, 400
SETUP = "import time\n%load_ext yaie_magic\n%yaie load tiny --num-blocks 256"
BEFORE = "began = time.process_time()"
FIGURES = "print((_yaie.timings.total, time.process_time() - began, _yaie.usage.completion))"
SECONDS = 600


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

    def generate(self, tokens: int, options: str) -> tuple[float, float]:
        """Seconds of one generation by the engine's own clock, and of all threads of the kernel on a processor."""
        self.messages = 0
        self.run(BEFORE)
        self.run(f"%%generate -m {tokens} -t 0 --ignore-eos {options}\nOnce upon a time")
        seconds, processor, made = ast.literal_eval(self.run(FIGURES))
        if made != tokens:
            raise RuntimeError(f"{made} tokens instead of {tokens}")
        return float(seconds), float(processor)


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


def main(pairs: int = PAIRS, tokens: int = TOKENS) -> int:
    """Print one line for each pair, and the medians with their spread."""
    slower: list[float] = []
    busier: list[float] = []
    with kernel() as found:
        for options in ("-q", ""):  # imports, and the prompt in the cache
            found.generate(tokens // 4 or 1, options)
        print(f"{'pair':>4}{'quiet tok/s':>14}{'shown tok/s':>14}{'slower':>10}{'busier':>10}{'messages':>10}")
        for pair in range(1, pairs + 1):
            took, messages = {}, 0
            for options in ("-q", "") if pair % 2 else ("", "-q"):
                took[options] = found.generate(tokens, options)
                messages = max(messages, found.messages)
            quiet, shown = took["-q"], took[""]
            slower.append(shown[0] / quiet[0] - 1)
            busier.append(shown[1] / quiet[1] - 1)
            shares = f"{slower[-1] * 100:9.1f}%{busier[-1] * 100:9.1f}%"
            print(f"{pair:4}{tokens / quiet[0]:14.1f}{tokens / shown[0]:14.1f}{shares}{messages:10}", flush=True)
    for name, found_shares in (("slower", slower), ("busier", busier)):
        middle, low, high = (f(found_shares) * 100 for f in (statistics.median, min, max))
        print(f"{name}: median {middle:.1f} %, from {low:.1f} to {high:.1f} %")
    return 0
