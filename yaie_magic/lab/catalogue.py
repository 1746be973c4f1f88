"""The list of kernels as the notebook shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from yaie_widgets.palette import notebook_style
from yaie_widgets.safe_text import escape_html

from .listing import catalogue_table


class Catalogue(list[dict[str, Any]]):
    """What `yaie kernels --json` prints, shown as a table. `users` names by label the engines that run a kernel;
    `replaced` are the kernels whose source is not the built-in one; `note` is a line below the table."""

    def __init__(
        self,
        entries: Sequence[dict[str, Any]],
        users: Mapping[str, str],
        replaced: Sequence[str] = (),
        note: str = "",
    ) -> None:
        super().__init__(entries)
        self._table = catalogue_table(entries, users if any(users.values()) else None)
        failed = [entry["name"] for entry in entries if not entry["ok"]]
        kernels = {str(entry["name"]).partition("[")[0] for entry in entries}
        self._title = f"{_count(len(entries), 'specialisation')} of {_count(len(kernels), 'kernel')}"
        self._title += f" · {len(failed)} failed" if failed else ""
        self._notes = [f"{name} did not compile; %%kernel {name.partition('[')[0]} shows its source" for name in failed]
        self._notes += [note] if note else []
        if replaced:
            self._notes.append(f"replaced: {', '.join(replaced)}; %yaie kernels reset restores the built-in")

    def __repr__(self) -> str:
        return f"<Catalogue: {self._title}>"

    def __str__(self) -> str:
        return "\n".join([self._title, "", *self._table.lines, *([""] if self._notes else []), *self._notes])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return self.bundle()

    def bundle(self) -> dict[str, str]:
        """Text and HTML."""
        notes = "".join(f"<div>{escape_html(line)}</div>" for line in self._notes)
        html = (
            f'<div class="yaie-drawing explanation"><style>{notebook_style()}</style>'
            f"<div><b>{escape_html(self._title)}</b></div>{self._table.html}"
            f'<div style="margin-top:8px;color:var(--y-ink2)">{notes}</div></div>'
        )
        return {"text/plain": str(self), "text/html": html}


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
