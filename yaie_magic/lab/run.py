"""Runs a check beside the notebook: says how far it is, ends it at its deadline or on Ctrl-C, gathers what it found."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from yaie_cuda.lab.process import CheckProcess, Finding
from yaie_cuda.lab.request import CheckRequest
from yaie_cuda.lab.result import CaseResult
from yaie_magic.aside import BRIEFLY
from yaie_magic.display import Handle, in_notebook
from yaie_magic.interrupt import Interrupted, Shield

from .listing import FIELDS
from .result import KernelResult
from .sanitizers import read_report

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

Say = Callable[[str], None]
PREPARING = 120.0  # seconds for what is not the kernel's own doing: to start, to compile


class Progress:
    """One line in one display that the result replaces; in a terminal, and in static mode, nothing."""

    def __init__(self, shell: InteractiveShell, quiet: bool) -> None:
        self._handle = Handle(shell) if in_notebook(shell) and not quiet else None

    @property
    def shown(self) -> bool:
        """Whether there is a display to put the result into."""
        return self._handle is not None

    def say(self, text: str) -> None:
        """Show what is going on."""
        self.show({"text/plain": text})

    def show(self, content: dict[str, str]) -> None:
        """Put `content` in place of what was there."""
        if self._handle is not None:
            self._handle.update(content)


def run_check(request: CheckRequest, timeout: float, say: Say) -> KernelResult:
    """Check a kernel; `timeout` is how many seconds the kernel may take for a case.

    Raises:
        Interrupted: on Ctrl-C; the process is ended.
    """
    gathered = Gathered(request, say)
    with Shield() as shield, closing(CheckProcess(request)) as process:
        try:
            while not gathered.ended:
                with shield.waiting():
                    finding = process.take(BRIEFLY)
                gathered.take(finding, timeout)
        except KeyboardInterrupt:
            raise Interrupted(f"the check of {request.kernel} was interrupted") from None
    return gathered.result


class Gathered:
    """What a check has told so far."""

    def __init__(self, request: CheckRequest, say: Say) -> None:
        self.ended = False
        self.result = KernelResult(
            request.kernel, request.device, request.arch, text=request.text, sanitized=request.sanitize
        )
        self._say = say
        self._doing, self._limited, self._since = "starting", False, time.monotonic()

    def take(self, finding: Finding | None, timeout: float) -> None:
        """One more finding, or none for a while: after `timeout` seconds without one the check is over."""
        if finding is None:
            if time.monotonic() - self._since > (timeout if self._limited else max(timeout, PREPARING)):
                self._fail(
                    f"{self._doing}: it did not end within {timeout:g} s and was stopped (--timeout allows more)"
                )
                self.ended = True
            return
        kind, data = finding
        self._since = time.monotonic()
        takers: dict[str, Callable[[Any], None]] = {
            "doing": self._take_doing,
            "running": self._take_running,
            "report": self._take_report,
            "case": self._take_case,
            "times": self._take_times,
            "note": self._take_note,
            "problem": self._take_problem,
            "end": self._take_end,
        }
        takers[kind](data)

    def _take_doing(self, what: str, limited: bool = False) -> None:
        self._doing, self._limited = what, limited
        self._say(f"{self.result.kernel}: {what}")

    def _take_running(self, case: str) -> None:
        self._take_doing(case, limited=True)

    def _take_report(self, report: dict[str, Any]) -> None:
        self.result.reports = (*self.result.reports, {name: report[name] for name in FIELDS})

    def _take_case(self, data: dict[str, Any]) -> None:
        case = CaseResult.from_dict(data)
        self.result.cases = (*self.result.cases, case)
        if case.ok:
            return
        words, log = case.words, case.log
        if case.how.endswith("sanitizer"):
            found, lines = read_report(case.failure, log, f"{self.result.kernel}.cu", self.result.text.splitlines())
            words, log = f"{found} ({case.how})", "\n".join(lines)
        self._fail(f"{case.title}: {words}", log)

    def _take_times(self, data: tuple[int, float, float]) -> None:
        index, mine, built_in = data
        cases = list(self.result.cases)
        cases[index] = replace(cases[index], milliseconds=mine, built_in_milliseconds=built_in)
        self.result.cases = tuple(cases)

    def _take_note(self, text: str) -> None:
        self.result.note = text

    def _take_problem(self, data: dict[str, str]) -> None:
        during = f" (while {self._doing})" if data.get("during") else ""
        self._fail(data["words"] + during, data["log"])

    def _take_end(self, _: None) -> None:
        self.ended = True

    def _fail(self, words: str, log: str = "") -> None:
        """The first problem is the one that is told."""
        if not self.result.reason:
            self.result.reason, self.result.log = words, log
