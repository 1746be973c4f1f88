"""Libraries and programs for this machine's CPU, built by its C++ compiler and kept on disk by content."""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
from pathlib import Path

from yaie_cuda.errors import KernelCompileError

DIGEST_BYTES = 32


def content_key(*parts: bytes) -> str:
    """A file name for what is made of `parts`: another one where any of them differs."""
    return hashlib.sha256(b"\0".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()[:32]


def sources_of(folder: Path, *patterns: str) -> bytes:
    """The names and texts of all files that match: a change of any of them makes every build a new one."""
    paths = sorted(path for pattern in patterns for path in folder.glob(pattern))
    return b"\0".join(path.name.encode() + b"\0" + path.read_bytes() for path in paths)


def compile_whole(command: list[str], text: str, target: Path, label: str) -> None:
    """Compile `text` to `target`, which appears whole or not at all, with its digest at its end.

    Linkers and loaders do not look behind what an ELF file's headers name. Raises KernelCompileError.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".building-") as folder:
        unfinished = Path(folder) / target.name
        done = subprocess.run(
            [*command, "-o", str(unfinished)], input=text, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise KernelCompileError(label, Path(command[0]).name, done.stderr)
        digest = hashlib.sha256(unfinished.read_bytes()).digest()
        with unfinished.open("ab") as file:
            file.write(digest)
        unfinished.replace(target)


def is_whole(target: Path) -> bool:
    """Whether a build is there as it was made. One that was cut or changed is as good as none, and made anew."""
    try:
        data = target.read_bytes()
    except OSError:
        return False
    return hashlib.sha256(data[:-DIGEST_BYTES]).digest() == data[-DIGEST_BYTES:]
