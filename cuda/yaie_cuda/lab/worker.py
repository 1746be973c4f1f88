"""The process that a kernel is checked in: `python -m yaie_cuda.lab.worker`.

One JSON request (see request.py) on the first line of standard input, then a JSON line [kind, data] for each finding on
standard output. It ends when its input does: when whoever asked is gone.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import traceback
from typing import Any


def main() -> int:
    """Read the request, check, tell."""
    lines = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever else writes to standard output must not mix with the findings
    request = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_input, daemon=True).start()

    def tell(kind: str, data: Any) -> None:
        lines.write(json.dumps([kind, data]) + "\n")
        lines.flush()

    import torch

    from .check import Check
    from .request import CheckRequest

    torch.set_num_threads(1)
    try:
        Check(CheckRequest.from_dict(request), tell).run()
    except Exception as error:  # told like any other finding; whoever asked decides
        words = f"the check itself failed: {type(error).__name__}: {error}"
        tell("problem", {"words": words, "log": traceback.format_exc()})
    tell("end", None)
    return 0


def _end_with_input() -> None:
    # Not through sys.stdin: a thread that holds its lock would keep the interpreter from ending.
    with contextlib.suppress(OSError):
        while os.read(0, 1):
            continue
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
