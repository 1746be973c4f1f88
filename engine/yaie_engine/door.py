"""How many requests wait to run for the first time, readable from any thread. Imports no torch."""

from __future__ import annotations


class Door:
    """Counts requests on their way in: `entered` the inbox, `seen` by the engine thread, `left` to run (or ended).

    What came after the last schedule has not had its chance yet: it waits only as far as no slot is free for it.
    """

    __slots__ = ("_last", "_slots", "entered", "left", "seen")

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self.entered = self.seen = self.left = 0
        self._last = (0, slots)

    def enter(self) -> None:
        """A request is put into the inbox."""
        self.entered += 1

    def look(self, num_running: int) -> None:
        """A schedule has looked at everything seen so far; `num_running` sequences run."""
        self._last = (self.seen, max(0, self._slots - num_running))

    def free(self, num_running: int) -> None:
        """Only `num_running` sequences are left of those that ran."""
        self._last = (self._last[0], max(0, self._slots - num_running))

    @property
    def num_waiting(self) -> int:
        """Requests that entered and have to wait."""
        waiting = self.entered - self.left
        looked_at, free_slots = self._last
        fresh = self.entered - looked_at
        return waiting if waiting > fresh else max(0, waiting - free_slots)
