"""Cells that are a line of ours and nothing else. IPython refuses a cell magic without a body before it asks the magic,
so `%%generate --help` alone would show no help: such a cell gets an empty line."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

_OURS = re.compile(r"%%(generate|chat|batch|kernel)\b")


def with_body(lines: list[str]) -> list[str]:
    """An input transformer: the cell's lines, with an empty body where there is none."""
    first = next((index for index, line in enumerate(lines) if line.strip()), None)
    if first is None or first != len(lines) - 1 or not _OURS.match(lines[first]):
        return lines
    return [lines[first].rstrip("\n") + "\n", "\n"]


def install(shell: InteractiveShell) -> None:
    """Put it before IPython's own transformers, once."""
    transforms = shell.input_transformer_manager.cleanup_transforms
    if with_body not in transforms:
        transforms.insert(0, with_body)


def remove(shell: InteractiveShell) -> None:
    """Take it away."""
    transforms = shell.input_transformer_manager.cleanup_transforms
    transforms[:] = [each for each in transforms if each is not with_body]
