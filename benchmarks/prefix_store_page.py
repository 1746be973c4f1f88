"""The part of docs/performance.md about the prefix store, from the JSON of `benchmarks/prefix_store`."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from typing import Any

from .run_file import RunPart

TARGET = 2.0
"""Times what it takes with the prefix in memory: what a hit in the store after a restart may take."""
TABLES = {"times": "", "windowed": " with a sliding window"}


def _over(times: Mapping[str, list[float]]) -> float:
    """The store's median over that in memory."""
    return statistics.median(times["store"]) / statistics.median(times["in memory"])


def misses(run: Mapping[str, Any]) -> Iterator[str]:
    """Restarts that take longer than the target allows."""
    for name, words in TABLES.items():
        if (over := _over(run[name])) > TARGET:
            yield f"a restart with the prefix store{words} takes {over:.2f} times as long as memory, at most {TARGET:g}"


def _head(run: Mapping[str, Any]) -> Iterator[str]:
    rounds = len(next(iter(run["times"].values())))
    yield f"Time to the first token after a prefix of {run['prefix']:,} tokens and {run['own']} of its own, medians of"
    yield f"{rounds}, each in an engine that was just opened; the store may take {TARGET:g} times as long as memory:"
    yield ""


def _table(times: Mapping[str, list[float]]) -> Iterator[str]:
    middle = {case: statistics.median(values) for case, values in times.items()}
    yield "| prefix | TTFT, ms | of cold | of in memory |"
    yield "|---|---|---|---|"
    for case, value in middle.items():
        low, high = min(times[case]), max(times[case])
        cells = (
            f"{value:.1f} ({low:.1f} to {high:.1f}) | {value / middle['cold']:.1%} | {value / middle['in memory']:.2f}"
        )
        over = ", **over**" if case == "store" and _over(times) > TARGET else ""
        yield f"| {case} | {cells}{over} |"


def _gaps(run: Mapping[str, Any]) -> Iterator[str]:
    yield f"The longest time without a token of a running stream, beside a record of {run['record_mib']:,.1f} MiB:"
    yield ""
    yield "| meanwhile | ms |"
    yield "|---|---|"
    for what, value in run["gaps"].items():
        yield f"| {what} | {value:.1f} |"


def _lines(run: Mapping[str, Any]) -> Iterator[str]:
    yield from _head(run)
    yield from _table(run["times"])
    yield from ("", f"The same model with a sliding window of {run['window']} tokens in every layer:", "")
    yield from _table(run["windowed"])
    yield ""
    yield from _gaps(run)


PART = RunPart("prefix_store", _lines, misses)
