"""One input in a process of its own, within bounds of time and memory: what hangs or eats is named, and ended."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
import traceback
import warnings

import psutil

from tests.fuzz.targets import Target

LOOK_S = 0.01
MB = 2**20


def harm(target: Target, data: bytes, seconds: float, megabytes: float) -> str:
    """What the input does, or nothing. The memory is that of the whole process, as the fuzzer counts it."""
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads are not copied; the target needs none of ours
        child = os.fork()
    if not child:
        os._exit(_run(target, data))
    watched, end, ended = psutil.Process(child), time.monotonic() + seconds, 0
    try:
        while True:
            ended, status, used = os.wait4(child, os.WNOHANG)
            if ended:
                return _verdict(status, used.ru_maxrss / 1024, megabytes)
            if time.monotonic() > end:
                return f"it hangs: no end after {seconds:g} s"
            if watched.memory_info().rss > megabytes * MB:
                return f"it needs more than {megabytes:g} MB"
            time.sleep(LOOK_S)
    finally:
        if not ended:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _verdict(status: int, peak: float, megabytes: float) -> str:
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        return f"it ended the process by {signal.Signals(-code).name}"
    if code:
        return "it breaks a promise" if code == 1 else f"it ended the process with {code}"
    return f"it needs more than {megabytes:g} MB" if peak > megabytes else ""


def _run(target: Target, data: bytes) -> int:
    try:
        target(data)
    except BaseException:  # a panic of a library in Rust is no Exception
        traceback.print_exc()
        return 1
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
    return 0
