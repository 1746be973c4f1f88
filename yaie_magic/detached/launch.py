"""Starting and ending the process of a detached engine."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import subprocess
import sys
import threading
from queue import SimpleQueue
from typing import IO, TYPE_CHECKING, Any

from yaie_engine.errors import YaieError
from yaie_magic.aside import patient, start
from yaie_magic.interrupt import Interrupted, Shield
from yaie_magic.options import UsageProblem

from .folder import PrivateFolder
from .messages import error_of, heard
from .record import LOG_SUFFIX, EngineRecord, check_name
from .registry import find, forget

if TYPE_CHECKING:
    from yaie_engine import EngineConfig
    from yaie_magic.loading import Progress

COMMAND = [sys.executable, "-P", "-m", "yaie_magic.detached"]
ORDERLY_S = 40.0
"""Seconds until a process that was told to end is killed: it waits up to 30 for answers that are being sent."""
SOON_S = 5.0
"""The same for one that is loading."""
TAIL = 400


def launch(name: str, config: EngineConfig, idle_timeout: float, report: Progress | None = None) -> EngineRecord:
    """Start an engine in a process of its own and wait until it is ready.

    Raises:
        Interrupted: on Ctrl-C; the process is ended.
        YaieError: what the load raised there, or that the process died. No file of it is left.
    """
    check_name(name)
    if find(name) is not None:
        raise UsageProblem(f"a detached engine called {name} runs already; %yaie attach {name}")
    log = f".{secrets.token_hex(8)}{LOG_SUFFIX}"
    order = {"name": name, "config": config.model_dump(mode="json"), "idle_timeout": idle_timeout, "log": log}
    with Shield() as shield:  # to the end: a second Ctrl-C must not keep the process of the first alive
        process = _spawn(name, log)
        try:
            with shield.waiting():  # a long order fills the pipe
                _tell(process, order)
            _await(process, name, log, report, shield)
            found = find(name)
            if found is None or found.record.pid != process.pid:
                raise YaieError(f"the process of {name} ended as soon as it was ready")
            shield.check()
        except KeyboardInterrupt:
            _abandon(process, name, log)
            raise Interrupted(f"load of {name} interrupted; its process was ended") from None
        except BaseException:
            _abandon(process, name, log)
            raise
    # Or it would be a zombie from its end to that of this process.
    threading.Thread(target=process.wait, name="yaie-detached-end", daemon=True).start()
    return found.record


def end(record: EngineRecord) -> bool:
    """End the process of an engine and wait until it has. False when it had to be killed."""
    import psutil

    orderly = True
    if record.runs:
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(record.pid)
            process.terminate()
            try:
                process.wait(ORDERLY_S)
            except psutil.TimeoutExpired:
                orderly = False
                process.kill()
                with contextlib.suppress(psutil.TimeoutExpired):
                    process.wait(SOON_S)
    forget(record)
    return orderly


def _spawn(name: str, log_name: str) -> subprocess.Popen[bytes]:
    """The process, in a session of its own: no signal for this one's group or terminal reaches it."""
    with PrivateFolder() as folder:
        log = folder.open_log(log_name)
    try:
        return subprocess.Popen(
            [*COMMAND, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True
        )
    except OSError as error:
        with PrivateFolder() as folder:
            folder.remove(log_name)
        raise YaieError(f"no process can be started for {name}: {error.strerror or error}") from None
    finally:
        os.close(log)


def _tell(process: subprocess.Popen[bytes], order: dict[str, Any]) -> None:
    """Through a pipe, with a new key: command lines and environments can be read by others, or are inherited, and what
    is kept in a variable shows in a traceback."""
    pipe = process.stdin
    if pipe is not None:
        with contextlib.suppress(BrokenPipeError), pipe:  # it died; that is heard on the other pipe
            pipe.write(json.dumps({**order, "key": secrets.token_urlsafe(32)}).encode())


def _await(process: subprocess.Popen[bytes], name: str, log: str, report: Progress | None, shield: Shield) -> None:
    said: SimpleQueue[dict[str, Any]] = SimpleQueue()
    stream = process.stdout
    if stream is not None:
        start("yaie-detached", lambda: _listen(stream, said))
    while True:
        with shield.waiting():
            message = patient(said)
        if "ready" in message:
            return
        if "failed" in message:
            raise error_of(message)
        if "end" in message:
            raise YaieError(f"the process of {name} died while it loaded{_last_words(name, log)}")
        if report is not None:
            report(str(message["stage"]), message["share"])


def _listen(stream: IO[bytes], said: SimpleQueue[dict[str, Any]]) -> None:
    with stream:
        for line in stream:
            if (message := heard(line)) is not None:
                said.put(message)
    said.put({"end": True})


def _last_words(name: str, log: str) -> str:
    """The last line of the log, if there is one."""
    with PrivateFolder() as folder:
        found = folder.read_end(log, 4 * TAIL)
        if found is None:
            found = folder.read_end(name + LOG_SUFFIX, 4 * TAIL) or b""
    lines = found.decode(errors="replace").strip().splitlines()
    return f"; the last line of its log: {lines[-1][-TAIL:]}" if lines else ""


def _abandon(process: subprocess.Popen[bytes], name: str, log: str) -> None:
    """End it, and remove what it may have left."""
    process.terminate()
    try:
        process.wait(SOON_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    gone = find(name) is None  # this removes the file of a process that was killed
    with PrivateFolder() as folder:
        folder.remove(log)
        if gone:
            folder.remove(name + LOG_SUFFIX)
