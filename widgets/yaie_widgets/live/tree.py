"""The radix tree, live: prefixes as they grow and are evicted."""

from __future__ import annotations

from .source import Source
from .step_view import StepView
from .view import Message


class RadixTreeExplorer(StepView):
    """Follows an engine, or shows a saved run.

    `request` is the id of the request whose path is marked at first; `depth` is how many levels stand open at first.
    """

    NAME = "tree"

    def __init__(self, source: Source, *, request: str | None = None, depth: int | None = None) -> None:
        self._options = {"request": request, "depth": depth}
        super().__init__(source)

    def options(self) -> Message:
        return dict(self._options)
