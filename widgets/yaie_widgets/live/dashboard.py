"""The engine at a glance, live: totals, and every recorded step on one axis."""

from __future__ import annotations

from .memory import with_memory
from .source import Source
from .step_view import StepView
from .view import Message

_GRAIN = 2**20
"""Memory is shown in MiB: less is no news."""


class EngineDashboard(StepView):
    """Follows an engine, or shows a saved run. With an engine, the page also learns what memory its process takes."""

    NAME = "dashboard"

    def __init__(self, source: Source) -> None:
        self._memory = 0
        super().__init__(source)

    def whole(self) -> Message:
        message = super().whole()
        return {**message, "recording": with_memory(message["recording"], self.source.memory)}

    def _tick(self) -> None:
        super()._tick()
        memory = self.source.memory
        if memory is not None and abs(memory - self._memory) >= _GRAIN:
            self._memory = memory
            self.post("steps", delta={"engine": {"memory": memory}})
