"""From the text of a cell to the prompt: byte for byte, and names only where the writer asks for them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .options import UsageProblem

_NAME = re.compile(r"(?<!\{)\{([A-Za-z_][A-Za-z0-9_]*)\}(?!\})")


def prompt_of(cell: str, namespace: Mapping[str, Any] | None = None) -> str:
    """The prompt of a cell: its body without the one newline that ends it; names replaced when a namespace is given.

    Raises:
        UsageProblem: the body is empty, or a name is not defined.
    """
    body = cell.removesuffix("\n")
    if not body.strip():
        raise UsageProblem("the cell body is empty; write the prompt below the first line")
    return body if namespace is None else interpolate(body, namespace)


def interpolate(text: str, namespace: Mapping[str, Any]) -> str:
    """Replace `{name}` by the value of that name. Every other brace, `{{name}}` too, stays as it is.

    Raises:
        UsageProblem: names that are not defined; all of them are named.
    """
    unknown = sorted({name for name in _NAME.findall(text) if name not in namespace})
    if unknown:
        listed = ", ".join(f"{{{name}}}" for name in unknown)
        raise UsageProblem(
            f"{listed} is not defined in this notebook" if len(unknown) == 1 else f"{listed} are not defined"
        )
    return _NAME.sub(lambda found: str(namespace[found[1]]), text)
