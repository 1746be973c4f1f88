"""Where the text of a cell goes: standard output, one display that is replaced at the end, or nowhere."""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from copy import copy
from typing import TYPE_CHECKING, Any, Protocol

from .completion import Completion
from .render import Bundle, bundle, footer, heading, live_bundle, static_mode, title
from .run import Run
from .terminal import printable

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

INTERVAL = 0.05  # 20 Hz
PATIENCE = 0.2  # seconds; a signal that comes just before a wait begins is not seen until it ends
Waiting = Callable[[], AbstractContextManager[None]]
BYTES_PER_SECOND = 400_000  # a display carries the whole text each time: the longer it is, the rarer


class View(Protocol):
    """What shows a running cell."""

    def open(self, run: Run) -> None:
        """Take a place in the cell that is running now."""

    def follow(self, run: Run, waiting: Waiting) -> None:
        """Return when the request has ended. Every wait is inside `with waiting():`, where an interrupt may come."""

    def finish(self, completions: Sequence[Completion]) -> None:
        """All choices ended (or were interrupted): show the final form."""


def in_notebook(shell: InteractiveShell) -> bool:
    """Whether displays can be replaced later: a kernel, and nobody compares its first output with its last."""
    return getattr(shell, "kernel", None) is not None and not static_mode()


def choose_view(shell: InteractiveShell, quiet: bool, background: bool) -> View:
    """Decide once per cell. In the background nothing is printed: text of a thread would land in another cell."""
    if quiet or (background and not in_notebook(shell)):
        return NoView()
    if in_notebook(shell):
        from .live_view import WidgetView, live

        return WidgetView(Handle(shell), background) if live() else DisplayView(Handle(shell))
    return StreamView()


class NoView:
    """Shows nothing; the text gathers in the request until somebody asks for it."""

    def open(self, run: Run) -> None:
        """Take no place."""

    def follow(self, run: Run, waiting: Waiting) -> None:
        """Wait for the end: nothing is done for each token."""
        ended = False
        while not ended:
            with waiting():
                ended = run.wait(PATIENCE)
            if not ended:
                self.turn(run)
        run.settle()

    def turn(self, run: Run) -> None:
        """The request goes on; called a few times a second, where no interrupt comes."""

    def finish(self, completions: Sequence[Completion]) -> None:
        """Show nothing."""


class TextView:
    """The base of views that show the text itself, piece by piece."""

    def follow(self, run: Run, waiting: Waiting) -> None:
        """Pass on each piece as it comes."""
        deltas = run.deltas()
        while True:
            with waiting():
                item = next(deltas, None)
            if item is None:
                return
            self.write(*item)

    def write(self, index: int, text: str) -> None:
        """New text of one choice."""
        raise NotImplementedError


class StreamView(TextView):
    """The first choice as it comes, on standard output; the others after it."""

    def __init__(self) -> None:
        self._choices = 1
        self._written = 0
        self._flushed = 0.0

    def open(self, run: Run) -> None:
        """Text goes where the cell prints."""
        self._choices = run.params.n

    def write(self, index: int, text: str) -> None:
        """Print text of the first choice, flushing at most 20 times a second."""
        if index == 0 and text:
            if not self._written and self._choices > 1:
                sys.stdout.write(heading(0, self._choices))
            self._put(text)

    def finish(self, completions: Sequence[Completion]) -> None:
        """Print what has not been printed yet, and the line of figures."""
        first = completions[0]
        if not self._written:
            sys.stdout.write(title(first, completions))
        self._put(first.text[self._written :])
        self._line(first)
        for other in completions[1:]:
            sys.stdout.write(f"\n{title(other, completions)}{printable(other.text)}")
            self._line(other)
        sys.stdout.flush()

    def _line(self, completion: Completion) -> None:
        """End the line; the figures follow where `Out[n]` does not give them without times anyway."""
        gap = "" if completion.text.endswith("\n") or not completion.text else "\n"
        sys.stdout.write(gap if static_mode() else f"{gap}{footer(completion)}\n")

    def _put(self, text: str) -> None:
        sys.stdout.write(printable(text))
        self._written += len(text)
        now = time.monotonic()
        if now - self._flushed >= INTERVAL:
            self._flushed = now
            sys.stdout.flush()


class Handle:
    """One display of one cell, under an id of its own."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._publish: Callable[..., Any] = shell.display_pub.publish
        self._id = uuid.uuid4().hex
        self._shown = False

    def another(self) -> Handle:
        """A further display of the same cell."""
        other = copy(self)
        other._id, other._shown = uuid.uuid4().hex, False
        return other

    def update(self, content: Bundle) -> None:
        """Show `content`, in place of what was there."""
        self._publish(content, {}, transient={"display_id": self._id}, update=self._shown)
        self._shown = True


class DisplayView(TextView):
    """Growing text in one display, at most 20 times a second; a static result takes its place at the end."""

    def __init__(self, handle: Handle) -> None:
        self._texts: list[str] = []
        self._handle = handle
        self._next = 0.0

    def open(self, run: Run) -> None:
        """Show the empty text."""
        self._texts = [""] * run.params.n
        self._handle.update(live_bundle(self._texts))

    def write(self, index: int, text: str) -> None:
        """Take the text in; publish when the interval is over."""
        self._texts[index] += text
        now = time.monotonic()
        if now >= self._next:
            self._next = now + max(INTERVAL, sum(map(len, self._texts)) * 2 / BYTES_PER_SECOND)
            self._handle.update(live_bundle(self._texts))

    def finish(self, completions: Sequence[Completion]) -> None:
        """Replace the live text by the final form."""
        self._handle.update(bundle(completions))
