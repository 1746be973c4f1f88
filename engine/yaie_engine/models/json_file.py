"""JSON files of a model folder, read with limits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from yaie_engine.errors import ModelLoadError

MOST_BYTES = 4 * 2**20


def read_json(path: Path, most_bytes: int = MOST_BYTES) -> dict[str, Any]:
    """A JSON object of moderate size from a plain file.

    Raises:
        ModelLoadError: missing, no plain file, too large, damaged, or not an object.
    """
    where = f"{path.parent.name}/{path.name}"
    if not path.is_file():
        raise ModelLoadError(f"{where} is missing: this is no model folder of transformers")
    try:
        size = path.stat().st_size
        if size > most_bytes:
            raise ModelLoadError(f"{where} is {size} bytes long, allowed are {most_bytes}")
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelLoadError(f"{where} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ModelLoadError(f"{where} is damaged: {str(error)[:120]}; download it again") from error
    if not isinstance(content, dict):
        raise ModelLoadError(f"{where} holds no JSON object")
    return content
