"""A check in a process of its own: a kernel may crash it or never end, and whoever asked lives on. Knows no torch."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from .request import CheckRequest

PACKAGES = Path(__file__).parents[2]
STDERR_LINES = 40
END = "end"

Finding = tuple[str, Any]


class CheckProcess:
    """Starts at once. `take` gives the findings of check.py, and ("end", None) at last; `close` ends it early.

    A process that dies tells ("problem", {"words", "log"}) instead of the end. For one reader.
    """

    def __init__(self, request: CheckRequest) -> None:
        path = os.pathsep.join(filter(None, [str(PACKAGES), os.environ.get("PYTHONPATH")]))
        self._findings: SimpleQueue[Finding] = SimpleQueue()
        # A session of its own: an interrupt of the notebook is for the notebook, and all of its children end together.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "yaie_cuda.lab.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,
        )
        self._errors: list[str] = []
        self._readers = [threading.Thread(target=work, daemon=True) for work in (self._read, self._read_errors)]
        for reader in self._readers:
            reader.start()
        self._send(json.dumps(request.to_dict()) + "\n")

    def take(self, seconds: float) -> Finding | None:
        """The next finding; None when none has come within `seconds`."""
        with contextlib.suppress(Empty):
            return self._findings.get(timeout=seconds)
        return None

    def close(self) -> None:
        """End the process and all that it started. Safe to call twice."""
        if hasattr(os, "killpg"):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        else:
            self._process.kill()
        self._process.wait()
        for reader in self._readers:
            reader.join()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _send(self, text: str) -> None:
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):  # it died at once: the reader tells
                self._process.stdin.write(text.encode())
                self._process.stdin.flush()

    def _read(self) -> None:
        kind = ""
        for line in self._process.stdout or ():
            kind, data = json.loads(line)
            self._findings.put((kind, data))
        if kind != END:
            code = self._process.wait()
            self._readers[1].join()
            self._findings.put(("problem", {"words": last_words(code), "log": "\n".join(self._errors), "during": True}))
            self._findings.put((END, None))

    def _read_errors(self) -> None:
        for line in self._process.stderr or ():
            self._errors = [*self._errors, line.decode(errors="replace").rstrip("\n")][-STDERR_LINES:]


def last_words(code: int) -> str:
    """Why a process ended with `code`, for somebody who wrote the kernel that it ran."""
    if code >= 0:
        return f"the process that ran it ended with code {code}"
    name = signal.Signals(-code).name
    if name in ("SIGSEGV", "SIGBUS"):
        return f"it read or wrote memory that is not its own ({name})"
    return f"the process that ran it was ended by {name}"
