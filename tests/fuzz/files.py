"""Targets that read files of strangers: model folders, weights, recordings."""

from __future__ import annotations

import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from yaie_engine.errors import ModelLoadError, RequestError
from yaie_engine.models.gguf import screen_gguf
from yaie_engine.models.screen import FORBIDDEN, screen_json
from yaie_engine.models.tensor_header import BITS, read_header
from yaie_engine.trace import read_trace
from yaie_engine.trace_compare import compare_traces
from yaie_widgets.live.recording_check import check_recording
from yaie_widgets.live.recording_file import load_recording


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="yaie-fuzz-")


def _written(name: str, data: bytes) -> Path:
    path = Path(_folder().name) / name
    path.write_bytes(data)
    return path


def tensor_header(data: bytes) -> None:
    """What passes describes as many bits as the file has room for."""
    try:
        found = read_header(_written("model.safetensors", data))
    except ModelLoadError as error:
        assert "\n" not in str(error)
        return
    room = len(data) * 8
    assert all(info.numel * BITS[info.dtype] <= room for info in found.values())


def gguf_head(data: bytes) -> None:
    """Strings that pass were in the file."""
    try:
        found = screen_gguf(_written("model.gguf", data))
    except ModelLoadError as error:
        assert "\n" not in str(error)
        return
    assert sum(len(text) for text in found.values()) <= len(data)


def config_screen(data: bytes) -> None:
    """No configuration that passes asks for code, at any depth."""
    path = _written("config.json", data)
    try:
        config = screen_json(path.parent)
    except ModelLoadError as error:
        assert "\n" not in str(error)
        return
    for key, value in _pairs(config):
        assert not (key in FORBIDDEN and value) and not key.endswith("_internal"), key


def _pairs(value: Any) -> list[tuple[str, Any]]:
    """Every key of a document with its value."""
    found: list[tuple[str, Any]] = []
    rest = [value]
    while rest:
        item = rest.pop()
        if isinstance(item, dict):
            found += item.items()
            rest += item.values()
        elif isinstance(item, list):
            rest += item
    return found


def recording(data: bytes) -> None:
    """What passes can be written as JSON, and passes again."""
    try:
        found = load_recording(_written("run.json", data))
    except RequestError:
        return
    check_recording(json.loads(json.dumps(found, allow_nan=False)))


def trace(data: bytes) -> None:
    """What passes is the same when saved and read again, and its tables hold nothing that a terminal obeys."""
    try:
        found = read_trace(_written("steps.trace", data))
    except RequestError as error:
        assert "\n" not in str(error)
        return
    shown = f"{found}\n{compare_traces(found, found)}"
    assert all(line.isprintable() for line in shown.split("\n"))
    assert read_trace(found.save(Path(_folder().name) / "again.trace")) == found
