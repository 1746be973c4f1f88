"""Renders chat templates in a helper process that is started when first needed and kept for the next call."""

from __future__ import annotations

import atexit
import json
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .errors import ConfigError, RequestError, YaieError

DEADLINE_S = 10.0
MAX_CHARS = 8 * 2**20
_KEPT_ENVIRONMENT = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT", "TZ", "LANG", "LC_ALL", "TMPDIR")
"""Nothing else of the environment reaches the helper: tokens and keys live there."""


class TemplateProcess:
    """One helper process and its pipes. Any thread may call `render`; calls wait for each other."""

    def __init__(self, deadline_s: float = DEADLINE_S, max_chars: int = MAX_CHARS) -> None:
        self._deadline_s = deadline_s
        self._max_chars = max_chars
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0

    def render(self, template: str, variables: Mapping[str, Any]) -> str:
        """Text of a Jinja template.

        Raises:
            ConfigError: the template has an error of syntax, reaches for Python's internals, or is too slow or long.
            RequestError: the template refuses these messages, or a variable is not JSON data.
            YaieError: the helper process cannot be started.
        """
        seconds = math.ceil(self._deadline_s) + 1
        request = {"template": template, "variables": variables, "max_chars": self._max_chars, "seconds": seconds}
        try:
            line = json.dumps(request, allow_nan=False).encode() + b"\n"
        except (TypeError, ValueError, RecursionError) as error:
            raise RequestError(f"chat: messages and template variables must be JSON data: {error}") from None
        with self._lock:
            reply = self._exchange(line) or self._exchange(line)
        if not reply:
            raise YaieError("the helper process that renders chat templates ended unexpectedly")
        return _text(json.loads(reply))

    def close(self) -> None:
        """End the helper; a later `render` starts another."""
        process, self._process = self._process, None
        if process is None or self._owner != os.getpid():
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:  # unsent bytes of a broken pipe
                    continue

    def _exchange(self, line: bytes) -> bytes:
        """One request and its reply; b'' when the helper was gone. The helper is ended when the deadline passes."""
        process = self._running()
        if process.stdin is None or process.stdout is None:
            raise YaieError("the helper process has no pipes")
        started = time.monotonic()
        timer = threading.Timer(self._deadline_s, process.kill)
        timer.daemon = True
        timer.start()
        reply = b""
        try:
            process.stdin.write(line)
            process.stdin.flush()
            reply = process.stdout.readline()
        except OSError:
            reply = b""
        finally:
            timer.cancel()
            # Also on an interrupt: a helper that still works on this call must not answer the next one.
            if not reply.endswith(b"\n"):
                self.close()
        if not reply and time.monotonic() - started >= self._deadline_s:
            raise ConfigError(f"chat_template: rendering took longer than {self._deadline_s:g} s and was stopped")
        return reply

    def _running(self) -> subprocess.Popen[bytes]:
        """The helper; a new one after a fork, for pipes cannot be shared, and when the last one ended."""
        if self._process is not None and self._owner == os.getpid() and self._process.poll() is None:
            return self._process
        self.close()
        self._process, self._owner = _start(), os.getpid()
        return self._process


def _start() -> subprocess.Popen[bytes]:
    environment = {name: os.environ[name] for name in _KEPT_ENVIRONMENT if name in os.environ}
    environment["PYTHONPATH"] = os.pathsep.join(entry for entry in sys.path if entry)
    worker = Path(__file__).with_name("template_worker.py")
    try:
        # A session of its own: an interrupt of the notebook is not meant for the helper.
        return subprocess.Popen(
            [sys.executable, "-P", "-B", str(worker)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )
    except (OSError, TypeError) as error:
        raise YaieError(f"cannot start the helper process that renders chat templates: {error}") from error


def _text(reply: Mapping[str, str]) -> str:
    if "text" in reply:
        return reply["text"]
    kind, message = reply["error"], reply["message"]
    if kind == "template":
        raise RequestError(f"chat: the chat template refuses these messages: {message}")
    if kind == "security":
        raise ConfigError(f"chat_template: the template is not safe: {message}")
    raise ConfigError(f"chat_template: {message}")


_shared = TemplateProcess()
atexit.register(_shared.close)


def render_template(template: str, variables: Mapping[str, Any]) -> str:
    """`TemplateProcess.render` in the helper that all engines of this process share."""
    return _shared.render(template, variables)
