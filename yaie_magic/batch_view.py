"""How a batch shows: progress while it runs, one table or the texts in order at the end."""

from __future__ import annotations

import html
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from .completion import Completion
from .display import Handle, in_notebook
from .render import Bundle, footer, live_bundle, static_mode
from .run import Run
from .terminal import printable

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

_CELL = "text-align:left;vertical-align:top;padding:4px 12px 4px 0;white-space:pre-wrap;overflow-wrap:anywhere"


class BatchView(Protocol):
    """What a running batch reports to."""

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
    return TableView(Handle(shell)) if in_notebook(shell) else ListView()


class NoBatchView:
    """Shows nothing."""

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

    def progress(self, runs: Sequence[Run], total: int) -> None:
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


def table(completions: Sequence[Completion]) -> Bundle:
    """Prompt, text and figures of each completion."""
    rows, plain = [], []
    for number, one in enumerate(completions, 1):
        prompt = one.prompt if isinstance(one.prompt, str) else f"{len(one.prompt)} token ids"
        cells = "".join(
            f'<td style="{_CELL}">{html.escape(cell)}</td>' for cell in (_head(prompt), one.text, footer(one))
        )
        rows.append(f'<tr style="background:none"><td style="{_CELL}">{number}</td>{cells}</tr>')
        plain.append(f"[{number} of {len(completions)}] {_head(prompt)!r}\n{one.text}\n{footer(one)}")
    heads = "".join(f'<th style="{_CELL}" scope="col">{name}</th>' for name in ("", "prompt", "text", "figures"))
    body = f"<thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody>"
    markup = f'<table class="yaie" style="border-collapse:collapse">{body}</table>'
    return {"text/plain": "\n\n".join(plain), "text/html": markup}


def _head(text: str, limit: int = 80) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
