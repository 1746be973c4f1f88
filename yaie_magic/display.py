"""Where the text of a cell goes: standard output, one display that is replaced at the end, or nowhere."""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from .completion import Completion
from .render import Bundle, bundle, footer, heading, live_bundle, static_mode, title
from .terminal import printable

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

INTERVAL = 0.05  # 20 Hz
BYTES_PER_SECOND = 400_000  # a display carries the whole text each time: the longer it is, the rarer


class View(Protocol):
    """What a running cell writes to."""

    def open(self) -> None:
        """Take a place in the cell that is running now."""

    def write(self, index: int, text: str) -> None:
        """New text of one choice."""

    def finish(self, completions: Sequence[Completion]) -> None:
        """All choices ended (or were interrupted): show the final form."""


def in_notebook(shell: InteractiveShell) -> bool:
    """Whether displays can be replaced later: a kernel, and nobody compares its first output with its last."""
    return getattr(shell, "kernel", None) is not None and not static_mode()


def choose_view(shell: InteractiveShell, choices: int, quiet: bool, background: bool) -> View:
    """Decide once per cell. In the background nothing is printed: text of a thread would land in another cell."""
    if quiet or (background and not in_notebook(shell)):
        return NoView()
    if in_notebook(shell):
        return DisplayView(choices, Handle(shell))
    return StreamView(choices)


class NoView:
    """Shows nothing."""

    def open(self) -> None:
        """Take no place."""

    def write(self, index: int, text: str) -> None:
        """Ignore the text."""

    def finish(self, completions: Sequence[Completion]) -> None:
        """Show nothing."""


class StreamView:
    """The first choice as it comes, on standard output; the others after it."""

    def __init__(self, choices: int = 1) -> None:
        self._choices = choices
        self._written = 0
        self._flushed = 0.0

    def open(self) -> None:
        """Text goes where the cell prints."""

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

    def update(self, content: Bundle) -> None:
        """Show `content`, in place of what was there."""
        self._publish(content, {}, transient={"display_id": self._id}, update=self._shown)
        self._shown = True


class DisplayView:
    """Growing text in one display, at most 20 times a second; a static result takes its place at the end."""

    def __init__(self, choices: int, handle: Handle) -> None:
        self._texts = [""] * choices
        self._handle = handle
        self._next = 0.0

    def open(self) -> None:
        """Show the empty text."""
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
