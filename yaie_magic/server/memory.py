"""How much memory this process uses."""

from __future__ import annotations

import sys

import psutil


def process_memory() -> tuple[int, int]:
    """Bytes in use now, and the most so far."""
    used = int(psutil.Process().memory_info().rss)
    try:
        import resource
    except ImportError:  # Windows
        return used, int(getattr(psutil.Process().memory_info(), "peak_wset", used))
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used, max(used, most if sys.platform == "darwin" else most * 1024)
