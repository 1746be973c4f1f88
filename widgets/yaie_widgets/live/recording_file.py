"""Recordings as files: the run of one machine, to look at on another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from yaie_engine.errors import RequestError

from .recording import Json
from .recording_check import check_recording
from .schema import RecordingError

MAX_BYTES = 64 * 2**20


def save_recording(recording: Json, path: str | Path) -> Path:
    """Write a recording and return the path.

    Raises:
        RequestError: the file cannot be written.
    """
    target = Path(path).expanduser()
    content = json.dumps({**recording, "engine": {**recording["engine"], "state": "recorded"}}, separators=(",", ":"))
    try:
        target.write_text(content + "\n", encoding="utf-8")
    except OSError as error:
        raise RequestError(f"cannot write {target}: {error.strerror or error}") from None
    return target


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
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise RequestError(f"cannot read {source}: {error.strerror or error}") from None
    if len(raw) > MAX_BYTES:
        raise RecordingError(f"{source} has more than {MAX_BYTES // 2**20} MiB, which no recording has")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise RecordingError(f"{source} is no recording: it is no UTF-8 text") from None


def _no_number(name: str) -> Any:
    raise RecordingError(f"{name} is no number in JSON")


def _once(pairs: list[tuple[str, Any]]) -> Json:
    """An object whose keys differ: of two values for one key, readers take different ones."""
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        raise RecordingError(f"the key {max(keys, key=keys.count)[:40]!r} comes twice in one object")
    return found
