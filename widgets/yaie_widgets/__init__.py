"""Views of an engine snapshot: drawings and widgets. Names load what they need when first used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .block_table import draw_block_table
    from .drawing import Drawing
    from .explain import explain_request
    from .explain_cache import explain_block, explain_node
    from .explanation import Explanation
    from .radix_tree import draw_radix_tree
    from .render import RenderError

_HOME = {
    "Drawing": "drawing",
    "Explanation": "explanation",
    "RenderError": "render",
    "draw_block_table": "block_table",
    "draw_radix_tree": "radix_tree",
    "explain_block": "explain_cache",
    "explain_node": "explain_cache",
    "explain_request": "explain",
}
__all__ = [
    "Drawing",
    "Explanation",
    "RenderError",
    "draw_block_table",
    "draw_radix_tree",
    "explain_block",
    "explain_node",
    "explain_request",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
