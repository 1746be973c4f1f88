"""Views of an engine snapshot: drawings and widgets. Names load what they need when first used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .block_table import draw_block_table
    from .dashboard import Dashboard, draw_dashboard
    from .drawing import Drawing
    from .explain import explain_request
    from .explain_cache import explain_block, explain_node
    from .explanation import Explanation
    from .insights import Insights, find_insights
    from .live.blocks import KVBlockMap
    from .live.dashboard import EngineDashboard
    from .live.generation import LiveGeneration
    from .live.inspector import TokenInspector
    from .live.replay import Replay
    from .live.timeline import SchedulerTimeline
    from .live.tree import RadixTreeExplorer
    from .radix_tree import draw_radix_tree
    from .render import RenderError
    from .timeline import Timeline, draw_timeline
    from .trace import chrome_trace, save_trace

_HOME = {
    "Dashboard": "dashboard",
    "Drawing": "drawing",
    "EngineDashboard": "live.dashboard",
    "Explanation": "explanation",
    "Insights": "insights",
    "KVBlockMap": "live.blocks",
    "LiveGeneration": "live.generation",
    "RadixTreeExplorer": "live.tree",
    "RenderError": "render",
    "Replay": "live.replay",
    "SchedulerTimeline": "live.timeline",
    "Timeline": "timeline",
    "TokenInspector": "live.inspector",
    "chrome_trace": "trace",
    "draw_block_table": "block_table",
    "draw_dashboard": "dashboard",
    "draw_radix_tree": "radix_tree",
    "draw_timeline": "timeline",
    "explain_block": "explain_cache",
    "explain_node": "explain_cache",
    "explain_request": "explain",
    "find_insights": "insights",
    "save_trace": "trace",
}
__all__ = [
    "Dashboard",
    "Drawing",
    "EngineDashboard",
    "Explanation",
    "Insights",
    "KVBlockMap",
    "LiveGeneration",
    "RadixTreeExplorer",
    "RenderError",
    "Replay",
    "SchedulerTimeline",
    "Timeline",
    "TokenInspector",
    "chrome_trace",
    "draw_block_table",
    "draw_dashboard",
    "draw_radix_tree",
    "draw_timeline",
    "explain_block",
    "explain_node",
    "explain_request",
    "find_insights",
    "save_trace",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
