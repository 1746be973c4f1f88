"""Recordings as files: the run of one machine, to look at on another."""

from __future__ import annotations

import gzip
import json
import os
import uuid
import zlib
from pathlib import Path
from typing import Any, BinaryIO

from yaie_engine.errors import RequestError

from .recording import Json
from .recording_check import check_recording
from .recording_cut import with_size, written
from .schema import RecordingError

MAX_BYTES = 64 * 2**20
"""What a recording takes unpacked, and what a file takes, at most: the same for reading and for writing."""
_PIECE = 2**20
_PACKED = b"\x1f\x8b"


def save_recording(recording: Json, path: str | Path, *, force: bool = False) -> Json:
    """Write a recording, packed, and return what is in the file: as many of the newest steps as there is room for.

    The file is there as a whole or not at all, and only its owner may read it. `force` writes over one that is there.

    Raises:
        RequestError: the file cannot be written.
    """
    target = Path(path).expanduser()
    engine = {**recording["engine"], "state": "recorded"}
    saved = with_size({**recording, "engine": engine}, MAX_BYTES)
    content = written(saved).encode()
    if len(content) > MAX_BYTES:
        raise RequestError(f"cannot write {target}: the run has more than {MAX_BYTES // 2**20} MiB without its steps")
    beside = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}")
    try:
        if not force and target.exists():
            raise RequestError(f"cannot write {target}: it is there already; --force writes over it")
        try:
            # A recording holds prompts and answers: whoever made it decides who else may read it.
            beside.touch(0o600, exist_ok=False)
            beside.write_bytes(gzip.compress(content, 6, mtime=0))
            beside.replace(target)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise RequestError(f"cannot write {target}: {error.strerror or error}") from None
    return saved


def load_recording(path: str | Path) -> Json:
    """Read a recording that anybody may have written.

    Raises:
        RequestError: the file cannot be read, or is no recording; the text says what is wrong with it.
    """
    source = Path(path).expanduser()
    content = _read(source)
    try:
        document = check_recording(json.loads(content, parse_constant=_no_number, object_pairs_hook=_once))
    except RecordingError as error:
        raise RecordingError(f"{source} is no recording that can be shown: {error}") from None
    except (ValueError, RecursionError) as error:
        why = "it is nested too deep" if isinstance(error, RecursionError) else str(error)
        raise RecordingError(f"{source} is no recording: {why}") from None
    document["engine"] = {**document["engine"], "state": "recorded"}
    return document


def _read(source: Path) -> str:
    try:
        if source.exists() and not source.is_file():
            raise RequestError(f"cannot read {source}: it is no file")
        with source.open("rb") as file:
            raw = _bounded(source, file)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise RecordingError(f"{source} is no recording: it cannot be unpacked") from None
    except OSError as error:
        raise RequestError(f"cannot read {source}: {error.strerror or error}") from None
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise RecordingError(f"{source} is no recording: it is no UTF-8 text") from None


def _bounded(source: Path, file: BinaryIO) -> bytes:
    """What is in a file, unpacked piece by piece: a small file may be the beginning of endless data."""
    size = os.fstat(file.fileno()).st_size
    packed = file.read(len(_PACKED)) == _PACKED
    file.seek(0)
    stream: Any = gzip.GzipFile(fileobj=file) if packed else file
    raw = bytearray()
    while size <= MAX_BYTES and (piece := stream.read(_PIECE)):
        raw += piece
        size = max(size, len(raw))
    if size > MAX_BYTES:
        raise RecordingError(f"{source} has more than {MAX_BYTES // 2**20} MiB, which no recording has")
    return bytes(raw)


def _no_number(name: str) -> Any:
    raise RecordingError(f"{name} is no number in JSON")


def _once(pairs: list[tuple[str, Any]]) -> Json:
    """An object whose keys differ: of two values for one key, readers take different ones."""
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        raise RecordingError(f"the key {max(keys, key=keys.count)[:40]!r} comes twice in one object")
    return found
