"""llama.cpp's server on the same weights as GGUF, asked over HTTP on loopback with token ids."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from yaie_magic.bench.trial import UNSEEN, Served, Trial
from yaie_magic.bench.workloads import Ask, Workload

from . import native
from .peer import Setup

START_S = 300.0
ANSWER_S = 900.0
LONG_FLAGS = ("--kv-unified", "--swa-full")
"""Newer versions share the KV cache between slots and keep all of a sliding window only when told to."""
EXACT = ("--flash-attn", "off")
"""In float32: its flash attention rounds to half precision on the way, which moves logits by 0.007 in a 100M Llama."""


class LlamaServer:
    """One server process for all repetitions; prompts are new in each, so nothing in its cache helps."""

    def __init__(self, setup: Setup) -> None:
        self.about = native.about(setup.llama_server)
        self._port = free_port()
        self._log = Path(setup.scratch or ".") / "llama-server.log"
        help_text = native.output_of([setup.llama_server, "--help"])
        more = [flag for flag in LONG_FLAGS if flag in help_text]
        if setup.dtype == "float32" and f"{EXACT[0]} [on|off" in help_text:  # older ones have a switch without a value
            more += EXACT
        command = command_line(setup, self._port, more)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        self._wait()

    def run(self, workload: Workload) -> Trial:
        """One repetition: a thread and a connection for each request of a burst."""
        found: list[Served | BaseException | None] = [None] * len(workload.asks)

        def ask(index: int) -> None:
            try:
                found[index] = self._answer(workload.asks[index])
            except Exception as error:
                found[index] = error

        start = time.perf_counter()
        if workload.at_once:
            threads = [threading.Thread(target=partial(ask, index)) for index in range(len(found))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        else:
            for index in range(len(found)):
                ask(index)
        wall = time.perf_counter() - start
        served: list[Served] = []
        for each in found:
            if not isinstance(each, Served):
                raise RuntimeError(f"llama.cpp did not answer: {each}")
            served.append(each)
        return Trial(wall, tuple(served))

    def _answer(self, ask: Ask) -> Served:
        body = {
            "prompt": list(ask.prompt),
            "n_predict": ask.tokens,
            "temperature": 0,
            "top_k": 1,
            "samplers": ["top_k"],
            "ignore_eos": True,
            "cache_prompt": True,
            "return_tokens": True,
            "stream": True,
        }
        connection = HTTPConnection("127.0.0.1", self._port, timeout=ANSWER_S)
        start = time.perf_counter()
        try:
            connection.request("POST", "/completion", json.dumps(body), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            if answer.status != 200:
                raise RuntimeError(f"HTTP {answer.status}: {answer.read(300)!r}")
            times, token_ids = read_tokens(answer, ask.tokens)
        finally:
            connection.close()
        return Served(times[0] - start, times[-1] - start, token_ids)

    def _wait(self) -> None:
        """Until the model is loaded."""
        end = time.monotonic() + START_S
        while time.monotonic() < end:
            if self._process.poll() is not None:
                raise RuntimeError(f"llama-server ended with {self._process.returncode}: {tail(self._log)}")
            if self._healthy():
                return
            time.sleep(0.2)
        self.close()
        raise RuntimeError(f"llama-server was not ready within {START_S:.0f} s: {tail(self._log)}")

    def _healthy(self) -> bool:
        connection = HTTPConnection("127.0.0.1", self._port, timeout=5)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def close(self) -> None:
        """End the server."""
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def command_line(setup: Setup, port: int, more: list[str]) -> list[str]:
    """The server's words. In float32 the KV cache is float32 too, so that outputs can be compared."""
    slots = setup.at_most
    kv = ["--cache-type-k", "f32", "--cache-type-v", "f32"] if setup.dtype == "float32" else []
    threads = str(setup.threads)
    return [
        *(setup.llama_server, "--model", setup.gguf, "--host", "127.0.0.1", "--port", str(port)),
        *("--parallel", str(slots), "--ctx-size", str(context(setup, "--kv-unified" in more))),
        *("--threads", threads, "--threads-batch", threads, "--batch-size", "2048", "--ubatch-size", "512"),
        *kv,
        *more,
    ]


def context(setup: Setup, unified: bool) -> int:
    """Tokens of KV: 40,960 where slots share it; else each slot has its part, and the longest request must fit."""
    return max(40_960, setup.room + 1) if unified else setup.room * setup.at_most


def read_tokens(answer: Any, wanted: int) -> tuple[list[float], tuple[int, ...]]:
    """The time of each token, and the ids: UNSEEN for one that was held back until the next made its text whole.

    Raises:
        RuntimeError: another number of tokens came.
    """
    times: list[float] = []
    token_ids: list[int] = []
    for line in answer:
        if not line.startswith(b"data: "):
            continue
        event = json.loads(line[6:])
        new = event.get("tokens") or []
        held_back = event.get("tokens_predicted", 0) - len(token_ids) - len(new)
        new = [UNSEEN] * held_back + new
        times += [time.perf_counter()] * len(new)
        token_ids += new
    if len(token_ids) != wanted:
        raise RuntimeError(f"{len(token_ids)} tokens came, {wanted} were asked for")
    return times, tuple(token_ids)


def tail(log: Path) -> str:
    """The end of a log, on one line."""
    return " ".join(log.read_text(errors="replace").splitlines()[-3:])[-400:]


def free_port() -> int:
    """One that nobody listened on just now."""
    import socket

    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def open_peer(setup: Setup) -> LlamaServer:
    """Start it."""
    return LlamaServer(setup)
