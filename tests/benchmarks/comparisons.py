"""Made-up comparisons: peers that answer at once with times a test gives, and a run as JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.comparison.worker import PeerFailed
from yaie_magic.bench.trial import Served, Trial
from yaie_magic.bench.workloads import Workload


class FakeWorker:
    """A peer whose every token takes `seconds[i]` in its i-th run (the last one again and again)."""

    peak_bytes = 300 << 20

    def __init__(self, name: str, seconds: Sequence[float], order: list[str] | None = None, fails_at: int = -1) -> None:
        self.name, self.pid = name, 0
        self._seconds, self._order, self._fails_at = seconds, order if order is not None else [], fails_at
        self.seen: list[Workload] = []

    def run(self, workload: Workload) -> Trial:
        number = len(self.seen)
        self.seen.append(workload)
        self._order.append(self.name)
        if number == self._fails_at:
            raise PeerFailed("out of\nmemory")
        each = self._seconds[min(number, len(self._seconds) - 1)]
        served = tuple(Served(each, each * ask.tokens, tuple(range(ask.tokens))) for ask in workload.asks)
        return Trial(sum(one.total for one in served), served)


class FakeWatch:
    """Other load as a test gives it, one share for each try."""

    def __init__(self, shares: Sequence[float]) -> None:
        self._shares = iter(shares)

    def __call__(self, pid: int) -> FakeWatch:
        return self

    def share(self) -> float:
        return next(self._shares, 0.0)


def make_of(workload: Workload) -> Callable[[int], Workload]:
    """The same workload in every repetition."""
    return lambda repetition: workload


def repetitions(name: str, values: Sequence[float], foreign: float = 0.02) -> list[dict[str, Any]]:
    """One figure in each round."""
    return [{"figures": {name: value}, "foreign": foreign, "tries": 1} for value in values]


def row(peer: str, values: Sequence[float], **more: Any) -> dict[str, Any]:
    """A row of W1; figures that a test does not care about are all the same."""
    found = repetitions("tpot_ms", values, more.pop("foreign", 0.02))
    for each in found:
        each["figures"] |= {"ttft_ms": 30.0, "output_tokens_per_s": 100.0}
    return {"peer": peer, "problem": "", "declined": False, "repetitions": found, **more}


def comparison(**changes: Any) -> dict[str, Any]:
    """A whole run of W1."""
    rows = [
        row("yaie", [4.0, 5.0, 6.0]),
        row("generate", [16.0, 10.0, 12.0]),
        row("llama.cpp", [4.0, 4.0, 5.0], foreign=0.3),
        row("compiled", [], problem="it ran out of memory"),
    ]
    return {
        "kind": "comparison",
        "started": "2026-12-01T10:00:00+00:00",
        "seconds": 600.0,
        "command": "benchmarks/compare",
        "machine": {"cpu": "A CPU", "cores": 2, "features": ["avx2"], "commit": "0123456789abcdef"},
        "model": {"name": "llama100m", "words": "a Llama of 100M random weights"},
        "dtype": "bfloat16",
        "threads": 2,
        "rounds": 3,
        "limit": 0.1,
        "allow_load": False,
        "small": False,
        "peers": {
            "yaie": {"version": "0.1.0"},
            "generate": {"version": "transformers 5"},
            "llama.cpp": {"version": "1", "native": "no: it lacks AVX512"},
            "continuous": {"missing": "transformers is not installed"},
        },
        "workloads": [{"name": "W1", "words": "one request", "size": "1 request", "rows": rows}],
        "agreement": [],
        **changes,
    }
