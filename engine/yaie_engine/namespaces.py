"""How the name of a namespace is shown. Imports no torch."""

from __future__ import annotations

import hashlib


def shown(name: str) -> str:
    """A salt is somebody's secret: views, reports and messages show its digest."""
    return f"salt:{hashlib.sha256(name.encode()).hexdigest()[:8]}" if name.startswith("salt:") else name
