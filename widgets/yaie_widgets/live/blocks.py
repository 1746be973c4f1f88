"""The block map, live: every physical block with what it holds."""

from __future__ import annotations

from .source import Source
from .step_view import StepView
from .view import Message


class KVBlockMap(StepView):
    """Follows an engine, or shows a saved run. `request` is the id of the request whose blocks stand out at first."""

    NAME = "blocks"

    def __init__(self, source: Source, *, request: str | None = None) -> None:
        self._request = request
        super().__init__(source)

    def options(self) -> Message:
        return {"request": self._request}
