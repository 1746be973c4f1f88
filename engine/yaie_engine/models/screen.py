"""What a model folder may contain, checked before transformers sees it: it is data, never code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from yaie_engine.errors import ModelLoadError

MOST_CONFIG_BYTES = 4 * 2**20


def read_config(folder: Path) -> dict[str, Any]:
    """The content of config.json.

    Raises:
        ModelLoadError: it is missing, too large or no JSON object.
    """
    return read_json(folder / "config.json")


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object of moderate size.

    Raises:
        ModelLoadError: missing, too large, damaged, or not an object.
    """
    try:
        size = path.stat().st_size
        if size > MOST_CONFIG_BYTES:
            raise ModelLoadError(f"{path.name} is {size} bytes long, allowed are {MOST_CONFIG_BYTES}")
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelLoadError(f"{path.parent.name}: {path.name} is missing: this is no model folder") from error
    except (ValueError, RecursionError) as error:
        raise ModelLoadError(f"{path.parent.name}: {path.name} is damaged: {str(error)[:120]}") from error
    if not isinstance(content, dict):
        raise ModelLoadError(f"{path.parent.name}: {path.name} holds no JSON object")
    return content
