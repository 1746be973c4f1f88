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
SETUP = "%load_ext yaie_magic\n%yaie load tiny --num-blocks 256"
FIGURES = "print((_yaie.timings.total / _yaie.usage.completion, _yaie.usage.completion))"
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

    def seconds_per_token(self, tokens: int, options: str) -> float:
        """One generation, by the engine's own clock."""
        self.run(f"%%generate -m {tokens} -t 0 --ignore-eos {options}\nOnce upon a time")
        seconds, made = ast.literal_eval(self.run(FIGURES))
        if made != tokens:
            raise RuntimeError(f"{made} tokens instead of {tokens}")
        return float(seconds)


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
    """Print one line for each pair and the median with its spread."""
    shares = []
    with kernel() as found:
        for options in ("-q", ""):  # imports, and the prompt in the cache
            found.seconds_per_token(tokens // 4 or 1, options)
        print(f"{'pair':>6}{'quiet tok/s':>14}{'shown tok/s':>14}{'slower':>10}{'messages':>10}")
        for pair in range(1, pairs + 1):
            seconds, messages = {}, 0
            for options in ("-q", "") if pair % 2 else ("", "-q"):
                found.messages = 0
                seconds[options] = found.seconds_per_token(tokens, options)
                messages = max(messages, found.messages)
            shares.append(seconds[""] / seconds["-q"] - 1)
            rates = f"{1 / seconds['-q']:14.1f}{1 / seconds['']:14.1f}"
            print(f"{pair:6}{rates}{shares[-1] * 100:9.1f}%{messages:10}", flush=True)
    print(f"median {statistics.median(shares) * 100:.1f} %, from {min(shares) * 100:.1f} to {max(shares) * 100:.1f} %")
    return 0
