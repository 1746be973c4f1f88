"""Libraries and programs for this machine's CPU, built by its C++ compiler and kept on disk by content.

What lies there is loaded and run, so it is taken only from folders that nobody else can write to, and only whole.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from yaie_cuda.cache_folder import code_folders, is_private, write_whole
from yaie_cuda.errors import KernelCompileError, ToolMissingError

DIGEST_BYTES = 32
COMPILE_S, VERSION_S = 300.0, 20.0
"""Seconds after which a compiler hangs: ten times what the largest build takes on a slow machine."""


def content_key(*parts: bytes) -> str:
    """A file name for what is made of `parts`: another one where any of them differs."""
    return hashlib.sha256(b"\0".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()[:32]


def sources_of(folder: Path, *patterns: str) -> bytes:
    """The names and texts of all files that match: a change of any of them makes every build a new one."""
    paths = sorted(path for pattern in patterns for path in folder.glob(pattern))
    return b"\0".join(path.name.encode() + b"\0" + path.read_bytes() for path in paths)


def version_of(compiler: str) -> str:
    """What it says of itself. Raises ToolMissingError where it cannot be run."""
    try:
        code, text = run_tool([compiler, "--version"], "", VERSION_S)
    except OSError as error:
        raise ToolMissingError(f"{compiler} cannot be run: {error.strerror}") from error
    if code != 0:
        raise ToolMissingError(f"{compiler} does not work: --version ended with {code}: {text.strip()[:200]}")
    return text


def kept(name: str, file: str, make: Callable[[Path], None]) -> Path:
    """The build called `file` of the cache folder `name`, by `make` where it is not there yet.

    Raises:
        OSError: it can be written nowhere.
    """
    problem = "no folder for what is built is this user's alone"
    for folder in code_folders(name):
        target = folder / file
        if is_whole(target):
            return target
        if not os.access(folder, os.W_OK):
            problem = f"{folder} cannot be written to"
            continue
        try:
            make(target)
            return target
        except OSError as error:  # a full disk, say
            problem = f"{folder}: {error.strerror}"
    raise OSError(problem)


def compile_whole(command: list[str], text: str, target: Path, label: str) -> None:
    """Compile `text` to `target`, which appears whole or not at all, with its digest at its end.

    Linkers and loaders do not look behind what an ELF file's headers name.

    Raises:
        KernelCompileError: the compiler fails, or does not end.
        OSError: `target` cannot be written.
    """
    with tempfile.TemporaryDirectory(prefix="yaie-building-") as folder:
        unfinished = Path(folder) / target.name
        code, log = run_tool([*command, "-o", str(unfinished)], text, COMPILE_S)
        if code != 0 or not unfinished.is_file():
            raise KernelCompileError(label, Path(command[0]).name, log or f"it ended with {code} and made nothing")
        data = unfinished.read_bytes()
    write_whole(target, data + hashlib.sha256(data).digest(), mode=0o700)


def run_tool(command: list[str], text: str, limit_s: float) -> tuple[int, str]:
    """Exit code of a compiler that reads `text`, and what it printed. After `limit_s` seconds it is ended, code -9.

    Whatever ends the wait ends all of its processes: they are a session of their own. Raises OSError: it cannot be run.
    """
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        encoding="utf-8",
        errors="replace",
    ) as process:
        try:
            printed, _ = process.communicate(text, timeout=limit_s)
        except subprocess.TimeoutExpired:
            _end(process)
            return -signal.SIGKILL, f"it did not end within {limit_s:g} seconds"
        except BaseException:
            _end(process)
            raise
    return process.returncode, printed


def _end(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def is_whole(target: Path) -> bool:
    """Whether a build is there as it was made, and no one else's. Any other is as good as none, and made anew."""
    try:
        data = target.read_bytes()
        ours = is_private(target)
    except OSError:
        return False
    return ours and hashlib.sha256(data[:-DIGEST_BYTES]).digest() == data[-DIGEST_BYTES:]
