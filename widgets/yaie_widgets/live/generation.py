"""The live view of what is being generated: one request in full, or many as rows."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from .generation_row import Row, tally
from .publisher import publisher
from .view import PER_SECOND, LiveView, Message

SHARE: Final = 0.01  # of a processor's time is what following the requests may take: what takes longer comes rarer
FEW: Final = 12  # up to so many waiting requests are looked at on every turn
SLOW_S: Final = 0.5  # more of them this often: their place in the queue is all that changes
NOTHING: Final = Row("", "waiting", "waiting", "waiting", "", ("", ""), (0, 0, 0, 1, 1), ())


class Feed(Protocol):
    """One choice of one request, read from any thread without waiting."""

    def look(self, stopping: bool) -> Row:
        """How it stands."""

    def read(self, seen: int) -> tuple[str, int]:
        """The text after the first `seen` pieces, and how many pieces there are now."""

    def stop(self) -> None:
        """End it; returns at once."""


class LiveGeneration(LiveView):
    """Follows requests while they run. Text and figures are taken from the feeds at each turn of the publisher, so that
    neither the engine nor the cell does anything for the view.

    Args:
        feeds: the requests; more may be added while it runs.
        title: the heading of many requests; without one the view shows its only feed in full.
        noun: what the many are called.
        total: how many requests there will be.
        on_stop: called by "Stop all" in place of stopping each feed.
    """

    NAME = "generation"

    def __init__(
        self,
        feeds: Sequence[Feed] = (),
        *,
        title: str = "",
        noun: str = "request",
        total: int = 0,
        on_stop: Callable[[], None] | None = None,
    ) -> None:
        self._title, self._noun, self._total, self._on_stop = title, noun, total, on_stop
        self._feeds: list[Feed] = []
        self._rows: list[Row] = []
        self._texts: list[list[str]] = []
        self._seen: list[int] = []
        self._stopping: set[int] = set()
        self._turn = self._slow_at = -math.inf
        self._pause = 1 / PER_SECOND
        self._final: Mapping[str, Any] | None = None
        self.add(feeds)
        super().__init__()

    def add(self, feeds: Sequence[Feed]) -> None:
        """More requests."""
        for feed in feeds:
            self._rows.append(NOTHING)
            self._texts.append([])
            self._seen.append(0)
            self._feeds.append(feed)

    # ---- publisher thread

    def due(self) -> float:
        """Always a turn later while requests run: the feeds do not call. The final form goes to
        pages that look away, too."""
        if self._final is not None and self._pages and self.pending():
            return self._sent_at + self._pause
        if not self.visible or (self._quiet and not self.pending()):
            return super().due()
        return max(self._turn + self._pause, self._sent_at + self._pause)

    def publish(self) -> None:
        """Read the feeds and send what is new."""
        began = time.thread_time()
        self._turn = time.monotonic()
        self._follow()
        super().publish()
        self._pause = max(1 / PER_SECOND, (time.thread_time() - began) / SHARE)

    @property
    def _quiet(self) -> bool:
        return bool(self._rows) and all(row.ended for row in self._rows) and len(self._rows) >= self._total

    def _follow(self) -> None:
        slow = self._turn >= self._slow_at or len(self._feeds) <= FEW
        if slow:
            self._slow_at = self._turn + SLOW_S
        with self.lock:
            changes = []
            for index in range(len(self._feeds)):
                row = self._rows[index]
                if row.ended or (row.state == "waiting" and not slow and row is not NOTHING):
                    continue
                added = self._step(index)
                fields = self._rows[index].to_dict(None if row is NOTHING else row)
                if fields or added:
                    changes.append([index, fields, added])
            if changes and not self._whole_due:
                self.post("rows", rows=changes, tally=self._tally(), total=self._count)

    def _step(self, index: int) -> str:
        """Bring one row up to date; the text that is new. The row first: text that comes after its end is seen too."""
        row = self._feeds[index].look(index in self._stopping)
        added, self._seen[index] = self._feeds[index].read(self._seen[index])
        self._rows[index] = row
        if added:
            self._texts[index].append(added)
        return added

    @property
    def _count(self) -> int:
        return max(self._total, len(self._rows))

    def _tally(self) -> str:
        return tally(self._rows, self._count, self._noun) if self._title else ""

    def whole(self) -> Message:
        for index, row in enumerate(self._rows):
            if row is NOTHING:
                self._step(index)
        rows = [{**row.to_dict(), "text": "".join(text)} for row, text in zip(self._rows, self._texts, strict=True)]
        return {
            "kind": "whole",
            "title": self._title,
            "stacked": bool(self._title),
            "total": self._count,
            "tally": self._tally(),
            "rows": rows,
            "final": self._final,
        }

    # ---- kernel's threads

    def on_message(self, kind: str, content: Message) -> None:
        """`stop` with a row, or without one for all: the next turn tells the page that it was heard. `kept` when the
        page has put the final form into the notebook."""
        if kind == "kept":
            with self.lock:
                self._pages.pop(str(content.get("page", "")), None)
            if self._final is not None and not self._pages:
                self.close()
        if kind != "stop":
            return
        row: Any = content.get("row")
        if row is None and self._on_stop is not None:
            self._on_stop()
        for index in range(len(self._feeds)) if row is None else (row,):
            if type(index) is int and 0 <= index < len(self._feeds):
                self._stopping.add(index)
                self._feeds[index].stop()
        publisher.wake()

    def end(self, final: Mapping[str, Any]) -> None:
        """The static form stands in the cell now. A page that was loaded again has forgotten which output that is: it
        gets the form from here, and the widget stays until the page has put it there, even if no page is open now."""
        if self._came == len(self._pages) <= 1:
            self.close()
            return
        with self.lock:
            self._final = final
            self._whole_due = True
        publisher.wake()

    def __repr__(self) -> str:
        """The same on every run, whatever ids its requests have."""
        return f"<LiveGeneration: {self._title or 'one request'}>"
