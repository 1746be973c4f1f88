"""`yaie doctor`: what the engine finds on this machine, and whether it works."""

from __future__ import annotations

import json
from collections.abc import Sequence

from yaie_magic.cli import DONE, FAILED
from yaie_magic.options import option
from yaie_magic.parser import OptionParser
from yaie_magic.terminal import printable

OPTIONS = (option("json", "the report as one JSON object", kind="flag"),)


def run(arguments: Sequence[str]) -> int:
    """Print the report; 1 when the engine cannot be used."""
    from yaie_magic.doctor import examine

    given = OptionParser(
        "yaie doctor", OPTIONS, "Report versions, hardware, model, drawing and CUDA, and try the engine."
    ).parse(arguments)
    report = examine()
    if given.get("json"):
        print(json.dumps(report.to_dict(), indent=2))
    else:
        for line in report.to_text().splitlines():
            print(printable(line))
    return DONE if report.usable else FAILED
