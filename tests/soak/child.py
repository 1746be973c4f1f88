"""One row in a process of its own: `python -m tests.soak.child NUMBER SIZE SEED FILE` writes its figure into FILE."""

from __future__ import annotations

import dataclasses
import json
import sys
import traceback
from pathlib import Path

from .figure import Figure
from .rows import BY_NUMBER


def main(arguments: list[str]) -> int:
    """Whatever goes wrong becomes a fault of the figure."""
    number, size, seed = map(int, arguments[:3])
    try:
        figure = BY_NUMBER[number].make()(size, seed)
    except BaseException as error:
        traceback.print_exc()
        said = " ".join(str(error).split())[:200]
        figure = Figure("", "it ended early", (f"{type(error).__name__}: {said}",))
    answer = Path(arguments[3])
    part = answer.with_suffix(".part")
    part.write_text(json.dumps(dataclasses.asdict(figure)), encoding="utf-8")
    part.replace(answer)  # whole or not at all
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
