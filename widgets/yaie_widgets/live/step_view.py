"""The base of live views that follow the steps of a source."""

from __future__ import annotations

import math
import time

from .source import Source
from .twin import TwinKeeper
from .view import LiveView, Message

_PULL_S = 0.2
_HIDDEN_S = 1.0
_MANY_STEPS = 200


class StepView(LiveView):
    """Sends the recording once and what became known since from then on, at most five times a second."""

    INTERVAL = _PULL_S

    def __init__(self, source: Source) -> None:
        self.source = source
        self._revision = source.pull()
        self._twin: TwinKeeper | None = None
        super().__init__()

    def keep_twin(self, twin: TwinKeeper | None) -> None:
        """Have the static twin drawn again when it lacks steps; None leaves it as it is."""
        self._twin = twin

    def whole(self) -> Message:
        return {"kind": "recording", "recording": self.source.recording(), "options": self.options()}

    def options(self) -> Message:
        """What a page is told beside the recording."""
        return {}

    def due(self) -> float:
        if self.visible:
            return self._together(self.next_turn())
        return self._sent_at + _HIDDEN_S if self._twin else math.inf

    def _together(self, turn: float) -> float:
        """The nearest of the times at which all step views publish, so that they share what the source tells."""
        return turn if math.isinf(turn) else round(turn / self.INTERVAL) * self.INTERVAL

    def publish(self) -> None:
        with self.lock:
            if self.visible:
                self._tick()
                super().publish()
            else:  # nothing is sent, but what is saved goes on
                self._sent_at = time.monotonic()
                self.source.turn()
        if self._twin is not None:
            self._twin.look(self.source.step, self.source.idle, self.source.alive)

    def _tick(self) -> None:
        """Post what the source has learnt since the last turn."""
        revision = self.source.turn()
        delta = self.source.since(self._revision)
        self._revision = revision
        if delta is None or len(delta.get("steps", ())) > _MANY_STEPS:
            self._whole_due = True  # which travels packed
        elif any(delta.values()):
            self.post("steps", delta=delta)

    def catch_up(self) -> None:
        """Nothing to do: the next turn sends all since the last one."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.source.name}>"
