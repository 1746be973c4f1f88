"""Views of an engine snapshot: drawings and widgets. Names load what they need when first used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .drawing import Drawing
    from .radix_tree import draw_radix_tree
    from .render import RenderError

_HOME = {
    "Drawing": "drawing",
    "RenderError": "render",
    "draw_radix_tree": "radix_tree",
}
__all__ = ["Drawing", "RenderError", "draw_radix_tree"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
