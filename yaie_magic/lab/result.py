"""What `%%kernel` gives back: the compiler's report, the check against the reference, and how it shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from yaie_cuda.lab.result import CaseResult, number
from yaie_magic.completion import HOOK
from yaie_magic.render import static_mode
from yaie_widgets.palette import notebook_style
from yaie_widgets.safe_text import escape_html, escape_text, visible

from .diagnostics import errors_first, name_lines, read_log
from .source import code_style
from .table import Column, Table

MOST_LOG_LINES = 12
EMULATED_NOTE = "Emulated on the CPU: these times say nothing about a GPU."


@dataclass(frozen=True, slots=True)
class Error:
    """The case that is furthest off: its largest absolute and relative difference, and the first wrong element, if any.

    `index`, `got` and `expected` are None where every element is right.
    """

    case: str
    tensor: str
    max_error: float
    relative_error: float
    tolerance: float
    index: tuple[int, ...] | None
    got: float | None
    expected: float | None

    @classmethod
    def worst_of(cls, cases: tuple[CaseResult, ...]) -> Error | None:
        """The worst of all compared tensors; None when nothing was compared."""
        found = [(case, worst) for case in cases if (worst := case.worst) is not None]
        if not found:
            return None
        case, worst = max(found, key=lambda pair: (not pair[1].ok, pair[1].relative_error))
        return cls(
            case.title, worst.tensor, worst.max_error, worst.relative_error, worst.tolerance,
            worst.index, worst.got, worst.expected,
        )  # fmt: skip


@dataclass(eq=False)
class KernelResult:
    """`kernel` checked on `device` ("emulated" or "cuda:0") and compiled for `arch`.

    `reason` is what the check said when it failed; `used`: the engine runs it now; `fate` says why, or why not.
    `reports` are what the compiler made, a dict per specialisation; `log` is the text of whoever complained.
    """

    kernel: str
    device: str
    arch: str | None
    reports: tuple[Mapping[str, Any], ...] = ()
    cases: tuple[CaseResult, ...] = ()
    reason: str = ""
    log: str = ""
    used: bool = False
    fate: str = ""
    note: str = ""
    sanitized: bool = False
    text: str = field(default="", repr=False)

    @property
    def problem(self) -> str:
        """Why it is not `ok`, in one line that counts lines as the cell does; "" when it is."""
        return name_lines(self.reason, f"{self.kernel}.cu")[0]

    @property
    def ok(self) -> bool:
        """Whether it compiled and gave what the reference gives in every case."""
        return not self.reason

    @property
    def report(self) -> Mapping[str, Any] | None:
        """Registers, shared memory, spills and size of the first specialisation; None when nothing was compiled."""
        return self.reports[0] if self.reports else None

    @property
    def error(self) -> Error | None:
        """How far the results are from the reference's, where they are furthest; None when nothing ran to its end."""
        return Error.worst_of(self.cases)

    @property
    def times(self) -> dict[str, dict[str, float]]:
        """Milliseconds of each case: {"yours": ..., "built_in": ...}. Emulated ones say nothing about a GPU."""
        return {
            case.title: {"yours": case.milliseconds, "built_in": case.built_in_milliseconds}
            for case in self.cases
            if case.milliseconds is not None and case.built_in_milliseconds is not None
        }

    # ---- how it looks

    @property
    def title(self) -> str:
        """Name and verdict."""
        return f"{self.kernel} · {'passed' if self.ok else 'failed'}"

    @property
    def tables(self) -> list[Table]:
        """What the compiler made, then the cases."""
        found = []
        if any(report["ok"] for report in self.reports):
            found.append(report_table([report for report in self.reports if report["ok"]]))
        if self.cases:
            found.append(self._case_table())
        return found

    @property
    def messages(self) -> list[str]:
        """The compiler's errors with their lines, or what else is known about the problem."""
        if self.ok:
            return []
        found = errors_first(read_log(self.log))
        if found:
            return [line for each in found for line in each.lines(f"{self.kernel}.cu")]
        source = self.text.splitlines()
        _, named = name_lines(self.reason, f"{self.kernel}.cu")
        lines = [f"    {line}: {source[line - 1].strip()}" for line in dict.fromkeys(named) if line <= len(source)]
        told = self.log.strip("\n").splitlines()
        return [*lines, *(told[-MOST_LOG_LINES:] if "Traceback" in self.log else told[:MOST_LOG_LINES])]

    @property
    def notes(self) -> list[str]:
        """Lines at the end."""
        emulated = [EMULATED_NOTE] if self.device == "emulated" and self.times and not static_mode() else []
        return [*filter(None, [self.note]), *emulated, *filter(None, [self.fate])]

    def __repr__(self) -> str:
        return f"<KernelResult {self.title}>"

    def __str__(self) -> str:
        lines = [self.title, *filter(None, [self.problem]), *self.messages]
        for table in self.tables:
            lines += ["", *table.lines]
        return "\n".join([*map(visible, lines), *([""] if self.notes else []), *map(visible, self.notes)])

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != HOOK}

    def bundle(self) -> dict[str, str]:
        """Text and HTML; without times in static mode."""
        return {"text/plain": str(self), "text/html": self._html()}

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return self.bundle()

    def _html(self) -> str:
        problem = f'<div style="margin-top:4px">{escape_html(self.problem)}</div>' if self.problem else ""
        messages = escape_text("\n".join(map(visible, self.messages)))
        shown = f'<pre class="code">{messages}</pre>' if messages else ""
        notes = "".join(f'<div style="color:var(--y-ink2)">{escape_html(line)}</div>' for line in self.notes)
        below = f'<div style="margin-top:8px">{notes}</div>' if notes else ""
        return (
            f'<div class="yaie-drawing explanation kernel"><style>{notebook_style()}{code_style()}</style>'
            f"<div><b>{escape_html(self.title)}</b></div>{problem}{shown}"
            f"{''.join(table.html for table in self.tables)}{below}</div>"
        )

    def _case_table(self) -> Table:
        timed = bool(self.times) and not static_mode()
        columns = [Column("case"), Column("result"), Column("max error", True), Column("relative", True)]
        columns += [Column("allowed", True)]
        columns += [Column("yours", True), Column("built-in", True)] if timed else []
        rows = []
        for case in self.cases:
            worst = case.worst
            figures = (worst.max_error, worst.relative_error, worst.tolerance) if worst else (None, None, None)
            row = [case.title, "right" if case.ok else "failed", *map(short, figures)]
            row += [milliseconds(case.milliseconds), milliseconds(case.built_in_milliseconds)] if timed else []
            rows.append(tuple(row))
        return Table(tuple(columns), tuple(rows))


def report_table(reports: list[Mapping[str, Any]]) -> Table:
    """Registers, shared memory, spills and size of each specialisation."""
    columns = [Column("specialisation"), Column("arch"), Column("registers", True), Column("shared", True)]
    columns += [Column("spilled", True), Column("size", True)]
    rows = [
        (
            str(each["name"]),
            str(each["arch"]),
            str(each["registers"]),
            f"{each['shared_bytes']:,} B",
            f"{each['spill_bytes']:,} B",
            f"{each['cubin_bytes'] / 1024:.1f} KiB",
        )
        for each in reports
    ]
    return Table(tuple(columns), tuple(rows))


def short(value: float | None) -> str:
    """An error figure in three digits."""
    return (
        "—"
        if value is None
        else "0"
        if value == 0
        else f"{value:.2e}"
        if 0 < value < 0.01
        else number(float(f"{value:.3g}"))
    )


def milliseconds(value: float | None) -> str:
    """A time, in microseconds where it is short."""
    if value is None:
        return "—"
    return f"{value * 1000:.0f} µs" if value < 1 else f"{value:.1f} ms"
