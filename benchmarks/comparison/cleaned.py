"""Text for a page that is published: what it says of one machine's folders is cut down to names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from .worker import ROOT

_PATH = re.compile(r"(?<![\w.:/~])(?:~|\.\.)?/[^\s'\"`,;:()\[\]{}|<>]*[^\s'\"`,;:()\[\]{}|<>./]")


def without_paths(found: Any, root: Path = ROOT) -> Any:
    """The same JSON: in each text, paths below `root` are relative to it, and of others the last name is left."""
    if isinstance(found, dict):
        return {key: without_paths(each, root) for key, each in found.items()}
    if isinstance(found, list):
        return [without_paths(each, root) for each in found]
    return _named(found, root) if isinstance(found, str) else found


def _named(text: str, root: Path) -> str:
    return _PATH.sub(lambda match: match[0].rsplit("/", 1)[1], text.replace(f"{root}/", ""))
