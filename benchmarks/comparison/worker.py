"""A peer's process as the comparison sees it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import selectors
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil

from yaie_magic.bench.trial import Trial
from yaie_magic.bench.workloads import Workload

from .peer import Setup

ROOT = Path(__file__).resolve().parents[2]
PATHS = ("", "engine", "cuda", "widgets")
LIMIT_S = 1200.0
MOST_BYTES = 1 << 26


class PeerFailed(Exception):
    """A peer said what is wrong, died, or did not answer in time."""


class Worker:
    """Starts the process at once and loads the peer with `load`; after a death it can be loaded again."""

    def __init__(self, name: str, setup: Setup, log: Path, limit: float = LIMIT_S) -> None:
        self.name, self.about = name, dict[str, str]()
        self._setup, self._log, self._limit = setup, log, limit
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Of the process; 0 when there is none."""
        return self._process.pid if self._process is not None else 0

    @property
    def peak_bytes(self) -> int:
        """The most memory that the process and its descendants held at a time; 0 where the system does not say."""
        return family_peak(self.pid) if self._process is not None else 0

    def load(self) -> None:
        """Start and load it, unless that is done.

        Raises:
            PeerFailed: it cannot be loaded.
        """
        if self._process is None:
            self._process = self._start()
            self.about = self._ask("load", self._setup.to_dict())

    def run(self, workload: Workload) -> Trial:
        """One repetition.

        Raises:
            PeerFailed: it failed; it is loaded anew before the next one.
        """
        self.load()
        return Trial.from_dict(self._ask("run", workload.to_dict()))

    def judge(self, cases: list[dict[str, Any]]) -> list[float]:
        """See `Child.judge`."""
        self.load()
        found: list[float] = self._ask("judge", cases)
        return found

    def close(self, patience: float = 15.0) -> None:
        """End the process and everything it started; it gets `patience` seconds to do that itself."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(psutil.NoSuchProcess):
            family = psutil.Process(process.pid).children(recursive=True)
            if process.stdin is not None:
                process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(patience)
            for each in family:
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.kill()
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()

    def _start(self) -> subprocess.Popen[bytes]:
        paths = os.pathsep.join([*(str(ROOT / part) for part in PATHS), *filter(None, [os.environ.get("PYTHONPATH")])])
        threads = str(self._setup.threads)
        environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
        environment |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "benchmarks.comparison.child", self.name],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )

    def _ask(self, do: str, *given: Any) -> Any:
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise PeerFailed("it is not running")
        try:
            process.stdin.write(json.dumps({"do": do, "given": given}).encode() + b"\n")
            process.stdin.flush()
            line = _read_line(process.stdout, self._limit)
            answer = json.loads(line) if line else {"error": f"its process died; see {self._log}"}
        except TimeoutError:
            self.close(patience=0)
            raise PeerFailed(f"no answer within {self._limit:g} s") from None
        except OSError:
            answer = {"error": f"its process died; see {self._log}"}
        if "error" in answer:
            self.close()
            raise PeerFailed(answer["error"])
        return answer["ok"]


def family_peak(pid: int, proc: Path = Path("/proc")) -> int:
    """Bytes: the largest resident sizes so far of a process and its descendants, added up."""
    with contextlib.suppress(psutil.NoSuchProcess):
        family = [pid, *(each.pid for each in psutil.Process(pid).children(recursive=True))]
        return sum(_peak(proc / str(each) / "status") for each in family)
    return 0


def _peak(status: Path) -> int:
    try:
        found = re.search(r"^VmHWM:\s*(\d+) kB$", status.read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) * 1024 if found else 0


def _read_line(stream: Any, limit: float) -> bytes:
    """A line within `limit` seconds; empty when the stream ends first."""
    end, data = time.monotonic() + limit, b""
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        while not data.endswith(b"\n"):
            if not selector.select(max(0.0, end - time.monotonic())) or len(data) > MOST_BYTES:
                raise TimeoutError
            chunk = os.read(stream.fileno(), 1 << 16)
            if not chunk:
                return b""
            data += chunk
    return data
