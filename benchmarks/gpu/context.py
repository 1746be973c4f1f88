"""What a part is given: where it runs, how much time it has, and where its findings go."""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from .bench import Bench
from .clock import Timing
from .records import Check, Fact, Measurement, RecordFile, Skip


@dataclass(frozen=True, slots=True)
class Context:
    """`quick`: fewer shapes and samples; `tiny`: the CPU path, shapes that an emulator gets through in a second."""

    bench: Bench
    records: RecordFile
    deadline: float
    quick: bool = False
    tiny: bool = False

    @property
    def left(self) -> float:
        """Seconds until the part is stopped."""
        return self.deadline - time.monotonic()

    def fact(self, name: str, value: object) -> None:
        """Note something about the machine or the run."""
        self.records.add(Fact(name, value))

    def check(self, name: str, ok: bool, detail: str = "") -> None:
        """Note whether something is right."""
        self.records.add(Check(name, bool(ok), detail))

    def skip(self, name: str, reason: str) -> None:
        """Note that something cannot be tried here."""
        self.records.add(Skip(name, reason))

    def measured(
        self, name: str, timing: Timing, unit: str, note: str = "", target: str = "", judged: float | None = None
    ) -> None:
        """Note a timing in `unit` ("s", "ms" or "us")."""
        scale = {"s": 1.0, "ms": 1e3, "us": 1e6}[unit]
        figures = (timing.median * scale, unit, timing.low * scale, timing.high * scale, timing.count)
        self.records.add(Measurement(name, *figures, note, target, judged))

    def figure(self, name: str, value: float, unit: str, note: str = "", target: str = "") -> None:
        """Note a single figure, judged as it is."""
        judged = value if target else None
        self.records.add(Measurement(name, value, unit, value, value, 1, note, target, judged))

    @contextmanager
    def guarded(self, name: str) -> Iterator[None]:
        """A failure inside becomes a failed check, and the part goes on."""
        try:
            yield
        except Exception as error:  # whatever a kernel or a library raises is the finding
            traceback.print_exc()
            self.check(name, False, f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:300]}")
