"""Compiled kernels on disk, each with its report. A file that is damaged, or of another version, is as good as none."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
from pathlib import Path

from .cache_folder import cache_folder, write_whole
from .report import CompileReport

FORMAT = "yaie-cubin-1"


def key_of(*parts: str) -> str:
    """A name for what is compiled from `parts`, all of them."""
    return hashlib.sha256(json.dumps([FORMAT, *parts]).encode()).hexdigest()[:40]


def path_of(key: str) -> Path:
    """Where the kernel of that key is kept."""
    return cache_folder("cubins") / f"{key}.cubin"


def load(key: str) -> tuple[bytes, CompileReport] | None:
    """The cubin and its report (`cached`), or None."""
    try:
        data = path_of(key).read_bytes()
        head, _, cubin = data.partition(b"\n")
        fields = json.loads(head)
        if fields["format"] != FORMAT or fields["sha256"] != hashlib.sha256(cubin).hexdigest():
            return None
        report = CompileReport(**fields["report"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return cubin, dataclasses.replace(report, cached=True)


def store(key: str, cubin: bytes, report: CompileReport) -> None:
    """Keep a kernel. A folder that cannot be written to costs time, not work: nothing is raised."""
    head = {"format": FORMAT, "sha256": hashlib.sha256(cubin).hexdigest(), "report": dataclasses.asdict(report)}
    with contextlib.suppress(OSError):
        write_whole(path_of(key), json.dumps(head).encode() + b"\n" + cubin)
