"""The figures of a load, under the names of `vllm bench serve`. Times count from when a request was due."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from .sender import Outcome

PERCENTILES = (50, 90, 99)
METRICS = ("ttft", "tpot", "itl", "e2el")


@dataclass(frozen=True, slots=True)
class Latency:
    """One answered request, in milliseconds; `tpot` is None when there was one token."""

    ttft: float
    tpot: float | None
    e2el: float
    itl: tuple[float, ...]

    @classmethod
    def of(cls, outcome: Outcome) -> Latency:
        """From the times of its pieces. A piece may hold several tokens; where the server counts none, pieces count."""
        first, last, tokens = outcome.pieces[0], outcome.pieces[-1], tokens_of(outcome)
        gaps = tuple((b - a) * 1e3 for a, b in pairwise(outcome.pieces))
        tpot = (last - first) * 1e3 / (tokens - 1) if tokens > 1 else None
        return cls((first - outcome.due) * 1e3, tpot, (last - outcome.due) * 1e3, gaps)

    def meets(self, goals: Mapping[str, float]) -> bool:
        """Whether every goal is met; one token meets any goal for the time between tokens."""
        values = {"ttft": self.ttft, "tpot": self.tpot or 0.0, "e2el": self.e2el}
        return all(values[name] <= limit for name, limit in goals.items())


def tokens_of(outcome: Outcome) -> int:
    """Tokens of an answer."""
    return len(outcome.pieces) if outcome.output_tokens is None else outcome.output_tokens


def figures(outcomes: Sequence[Outcome], goals: Mapping[str, float]) -> dict[str, Any]:
    """All of them, JSON-ready. Times are None when no request was answered."""
    good = [outcome for outcome in outcomes if not outcome.error]
    latencies = [Latency.of(outcome) for outcome in good]
    duration = max((outcome.ended for outcome in outcomes), default=0.0) or 1e-9
    counted = all(outcome.input_tokens is not None for outcome in good)
    made = sum(tokens_of(outcome) for outcome in good)
    read = sum(outcome.input_tokens or 0 for outcome in good) if counted else None
    found: dict[str, Any] = {
        "duration": duration,
        "completed": len(good),
        "failed": len(outcomes) - len(good),
        "errors": dict(Counter(outcome.error for outcome in outcomes if outcome.error)),
        "total_input_tokens": read,
        "total_output_tokens": made,
        "request_throughput": len(good) / duration,
        "request_goodput": sum(each.meets(goals) for each in latencies) / duration if goals else None,
        "output_throughput": made / duration,
        "total_token_throughput": None if read is None else (read + made) / duration,
        "max_concurrent_requests": most_at_once(outcomes),
        "tokens_counted_by": "server" if all(o.output_tokens is not None for o in good) else "pieces of text",
    }
    samples: dict[str, Iterable[float]] = {
        "ttft": (each.ttft for each in latencies),
        "tpot": (each.tpot for each in latencies if each.tpot is not None),
        "itl": (gap for each in latencies for gap in each.itl),
        "e2el": (each.e2el for each in latencies),
        "send_delay": ((outcome.sent - outcome.due) * 1e3 for outcome in outcomes),
    }
    for name, values in samples.items():
        found |= statistics_of(name, list(values))
    return found


def statistics_of(name: str, values: Sequence[float]) -> dict[str, float | None]:
    """Mean, median, standard deviation and percentiles, in milliseconds."""
    names = [f"{kind}_{name}_ms" for kind in ("mean", "median", "std", *(f"p{p}" for p in PERCENTILES))]
    if not values:
        return dict.fromkeys(names)
    data = np.asarray(values)
    numbers = [data.mean(), np.median(data), data.std(), *np.percentile(data, PERCENTILES)]
    return dict(zip(names, map(float, numbers), strict=True))


def most_at_once(outcomes: Iterable[Outcome]) -> int:
    """The most requests that were in flight together."""
    changes = sorted(change for o in outcomes for change in ((o.sent, 1), (o.ended, -1)))
    at_once = most = 0
    for _, change in changes:
        at_once += change
        most = max(most, at_once)
    return most


def details(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Every request for itself, in the order in which they were due; times in seconds."""
    return {
        "input_lens": [outcome.input_tokens for outcome in outcomes],
        "output_lens": [tokens_of(outcome) for outcome in outcomes],
        "start_times": [outcome.due for outcome in outcomes],
        "ttfts": [outcome.pieces[0] - outcome.due if outcome.pieces else None for outcome in outcomes],
        "itls": [[b - a for a, b in pairwise(o.pieces)] for o in outcomes],
        "errors_each": [outcome.error for outcome in outcomes],
    }


def table(found: Mapping[str, Any]) -> str:
    """For people."""
    lines = [f"{found['completed']} requests answered in {found['duration']:.1f} s, {found['failed']} failed"]
    lines += [f"  failed: {count} x {kind}" for kind, count in found["errors"].items()]
    read = "unknown" if found["total_input_tokens"] is None else found["total_input_tokens"]
    lines.append(f"tokens: {read} read, {found['total_output_tokens']} made (counted by {found['tokens_counted_by']})")
    good = found["request_goodput"]
    lines.append(
        f"throughput: {found['request_throughput']:.2f} requests/s, {found['output_throughput']:.1f} output tokens/s"
        + ("" if good is None else f"; goodput {good:.2f} requests/s")
    )
    heads = ("mean", *(f"p{p}" for p in PERCENTILES))
    lines.append(f"{'ms':<12}" + "".join(f"{head:>10}" for head in heads))
    for name in (*METRICS, "send_delay"):
        values = [found[f"{head}_{name}_ms"] for head in heads]
        cells = "".join(f"{'-' if value is None else f'{value:.1f}':>10}" for value in values)
        lines.append(f"{name.upper() if name in METRICS else 'sent late':<12}{cells}")
    return "\n".join(lines)
