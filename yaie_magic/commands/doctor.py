"""`yaie doctor`: what the engine finds on this machine, and whether it works."""

from __future__ import annotations

import json
from collections.abc import Sequence

from yaie_magic import logs
from yaie_magic.cli import DONE, FAILED
from yaie_magic.commands import form
from yaie_magic.parser import OptionParser
from yaie_magic.terminal import printable

ABOUT = "Report versions, hardware, model, drawing and CUDA, and try the engine."
EXAMPLES = (
    ("is everything in place?", "yaie doctor"),
    ("for a program, or to attach to a report", "yaie doctor --json > doctor.json"),
    ("with what the engine logs on the way", "yaie doctor --log-level debug --log-file doctor.log"),
)


def parser() -> OptionParser:
    """Its options."""
    text = f"{form.EXIT_CODES}. The engine is not usable here: 1"
    return form.form("doctor", ABOUT, (form.JSON,), (), form.with_logging(), EXAMPLES, (form.STORE,), text)


def run(arguments: Sequence[str]) -> int:
    """Print the report; 1 when the engine cannot be used."""
    given = parser().parse(arguments)
    logs.set_up(given)

    from yaie_magic.doctor import examine

    report = examine()
    if given.get("json"):
        print(json.dumps(report.to_dict(), indent=2))
    else:
        for line in report.to_text().splitlines():
            print(printable(line))
    return DONE if report.usable else FAILED
