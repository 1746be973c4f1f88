"""What blocks and nodes did since it was last taken: the raw material of a step record. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass, field

from .snapshot import BlockEvents, TreeEvents


@dataclass(slots=True)
class Changes:
    """Block ids and node ids in the order in which things happened."""

    allocated: list[int] = field(default_factory=list)
    freed: list[int] = field(default_factory=list)
    evicted: list[int] = field(default_factory=list)
    copied: list[tuple[int, int]] = field(default_factory=list)
    added: list[int] = field(default_factory=list)
    extended: list[int] = field(default_factory=list)
    split: list[int] = field(default_factory=list)
    removed: list[int] = field(default_factory=list)

    def take(self) -> tuple[BlockEvents, TreeEvents]:
        """The events so far as frozen data; the lists start again empty."""
        events = (
            BlockEvents(tuple(self.allocated), tuple(self.freed), tuple(self.evicted), tuple(self.copied)),
            TreeEvents(tuple(self.added), tuple(dict.fromkeys(self.extended)), tuple(self.split), tuple(self.removed)),
        )
        for name in self.__slots__:
            getattr(self, name).clear()
        return events
