"""The flight recorder, live: one cursor over timeline, block map and radix tree."""

from __future__ import annotations

from .step_view import StepView


class Replay(StepView):
    """Follows an engine, or shows a saved run."""

    NAME = "replay"
