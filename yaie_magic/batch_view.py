"""How a batch shows: progress while it runs, one table or the texts in order at the end."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from .completion import Completion
from .display import Handle, in_notebook
from .render import footer, live_bundle, static_mode, table
from .run import Run
from .terminal import printable

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


class BatchView(Protocol):
    """What a running batch reports to."""

    def open(self, total: int, stop: Callable[[], None]) -> None:
        """A batch of `total` prompts begins; `stop` ends it from any thread."""

    def progress(self, runs: Sequence[Run], total: int) -> None:
        """Some requests may have moved on."""

    def ended(self, completions: Sequence[Completion]) -> None:
        """The next request in order has ended."""

    def finish(self, completions: Sequence[Completion]) -> None:
        """The batch is over."""


def choose_batch_view(shell: InteractiveShell, quiet: bool, background: bool) -> BatchView:
    """Decide once per cell."""
    if quiet or (background and not in_notebook(shell)):
        return NoBatchView()
    if not in_notebook(shell):
        return ListView()
    from .live_view import WidgetBatchView, live

    return WidgetBatchView(Handle(shell), background) if live() else TableView(Handle(shell))


class NoBatchView:
    """Shows nothing."""

    def open(self, total: int, stop: Callable[[], None]) -> None:
        """Show nothing."""

    def progress(self, runs: Sequence[Run], total: int) -> None:
        """Show nothing."""

    def ended(self, completions: Sequence[Completion]) -> None:
        """Show nothing."""

    def finish(self, completions: Sequence[Completion]) -> None:
        """Show nothing."""


class ListView(NoBatchView):
    """Each text on standard output, in the order of the prompts, as soon as its turn has come."""

    def __init__(self) -> None:
        self._number = 0
        self._total = 0

    def open(self, total: int, stop: Callable[[], None]) -> None:
        """Remember how many there are."""
        self._total = total

    def ended(self, completions: Sequence[Completion]) -> None:
        """Print the texts of one prompt."""
        self._number += 1
        for one in completions:
            text = printable(one.text).rstrip("\n")
            figures = "" if static_mode() else f"\n{footer(one)}"
            sys.stdout.write(f"[{self._number} of {self._total}]\n{text}{figures}\n")
        sys.stdout.flush()


class TableView(NoBatchView):
    """Counts in one display while it runs; a table of prompts and texts takes their place."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._said = ""

    def progress(self, runs: Sequence[Run], total: int) -> None:
        """Say how many have ended, when that has changed."""
        ended = sum(run.ended for run in runs)
        text = f"{ended} of {total} finished · {len(runs) - ended} sent"
        if text != self._said:
            self._said = text
            self._handle.update(live_bundle([text]))

    def finish(self, completions: Sequence[Completion]) -> None:
        """Show the table."""
        self._handle.update(table(completions))
