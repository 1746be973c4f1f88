"""The process of a peer: reads a line of JSON, does what it says, answers with one. What libraries print is a log."""

from __future__ import annotations

import json
import os
import sys
from typing import Any, TextIO

from yaie_magic.bench.workloads import Workload

from .peer import PEERS, Answering, Setup


def answers() -> TextIO:
    """The true standard output; from here on everything else that is printed goes to standard error."""
    kept = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return kept


class Child:
    """One peer, loaded when asked."""

    def __init__(self, name: str) -> None:
        self._open = PEERS[name].opener()
        self._peer: Answering | None = None

    def load(self, setup: dict[str, Any]) -> dict[str, str]:
        """Load; what the peer is."""
        self._peer = self._open(Setup(**setup))
        return self._peer.about

    def run(self, workload: dict[str, Any]) -> dict[str, Any]:
        """One repetition."""
        return self._loaded.run(Workload.from_dict(workload)).to_dict()

    def judge(self, cases: list[dict[str, Any]]) -> list[float]:
        """How far each case's tokens are from each other by the plain model; the peer is `generate`."""
        from .agreement import gap

        model: Any = getattr(self._loaded, "model")  # noqa: B009
        return [gap(model, case["ids"], case["tokens"]) for case in cases]

    def close(self) -> None:
        """End the peer."""
        if self._peer is not None:
            self._peer.close()
            self._peer = None

    @property
    def _loaded(self) -> Answering:
        if self._peer is None:
            raise RuntimeError("the peer is not loaded")
        return self._peer


def serve(name: str, lines: TextIO, out: TextIO) -> None:
    """Answer until the lines end. A failure is an answer too."""
    child = Child(name)
    try:
        for line in lines:
            order = json.loads(line)
            try:
                answer = {"ok": getattr(child, order["do"])(*order["given"])}
            except Exception as error:
                answer = {"error": f"{type(error).__name__}: {error}"[:600]}
            out.write(json.dumps(answer) + "\n")
            out.flush()
    finally:
        child.close()


if __name__ == "__main__":
    serve(sys.argv[1], sys.stdin, answers())
