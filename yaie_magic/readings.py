"""Metrics in Prometheus' text form, read for people: figures as they are, histograms as their mean and percentiles."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from yaie_engine.errors import YaieError

OURS, FOREIGN = ("yaie:",), ("vllm:", "sglang:", "llamacpp:", "tgi_")
"""Whose figures are about an engine; others are about the process or the web server."""
QUANTILES = (0.5, 0.9, 0.99)
MOST_LINES = 20_000


@dataclass(slots=True)
class Reading:
    """One figure, or the distribution behind a histogram: `buckets` are (upper bound, how many up to it)."""

    name: str
    labels: dict[str, str]
    value: float = 0.0
    count: float = 0.0
    buckets: list[tuple[float, float]] = field(default_factory=list)
    distribution: bool = False

    @property
    def label(self) -> str:
        """Its name with its labels."""
        inner = ", ".join(f"{key}={value}" for key, value in self.labels.items())
        return f"{self.name}{{{inner}}}" if inner else self.name

    def quantile(self, share: float) -> float | None:
        """By straight lines within the buckets, as Prometheus' histogram_quantile has it; None without observations."""
        if not self.count:
            return None
        wanted, below, before = share * self.count, 0.0, 0.0
        for bound, upto in sorted(self.buckets):
            if upto >= wanted:
                if math.isinf(bound):
                    return below
                return below + (bound - below) * (wanted - before) / max(upto - before, 1e-12)
            below, before = bound, upto
        return below

    def to_dict(self) -> Any:
        """Plain data."""
        if not self.distribution:
            return self.value
        mean = self.value / self.count if self.count else None
        return {"count": self.count, "mean": mean, **{f"p{share * 100:g}": self.quantile(share) for share in QUANTILES}}


def read_metrics(text: str) -> list[Reading]:
    """The figures of an engine in a text of Prometheus' form, in its order.

    Raises:
        YaieError: it is none, or endless.
    """
    if text.count("\n") > MOST_LINES:
        raise YaieError(f"metrics: more than {MOST_LINES:,} lines are not read")
    try:
        families = [each for each in text_string_to_metric_families(text) if each.name.startswith((*OURS, *FOREIGN))]
        return [reading for family in families for reading in _readings(family)]
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise YaieError(f"metrics: the text is not in Prometheus' form ({type(error).__name__})") from None


def _readings(family: Any) -> Iterator[Reading]:
    found: dict[tuple[tuple[str, str], ...], Reading] = {}
    for sample in family.samples:
        if sample.name.endswith("_created"):
            continue
        labels = {key: value for key, value in sample.labels.items() if key != "le"}
        spread = family.type in ("histogram", "summary")
        name = family.name if spread else sample.name
        each = found.setdefault(tuple(sorted(labels.items())), Reading(name, labels, distribution=spread))
        if not spread or sample.name.endswith("_sum"):
            each.value = float(sample.value)
        elif sample.name.endswith("_count"):
            each.count = float(sample.value)
        elif "le" in sample.labels:
            each.buckets.append((float(sample.labels["le"]), float(sample.value)))
    yield from found.values()


def table(readings: Iterable[Reading]) -> str:
    """A line for each, names in a column."""
    rows = [(reading.label, _told(reading)) for reading in readings]
    width = min(60, max((len(label) for label, _ in rows), default=0))
    return "\n".join(f"  {label:<{width}}  {told}" for label, told in rows)


def _told(reading: Reading) -> str:
    if not reading.distribution:
        return number(reading.value)
    if not reading.count:
        return "nothing observed"
    parts = [f"{number(reading.count)} observed", f"mean {number(reading.value / reading.count)}"]
    for share in QUANTILES:
        found = reading.quantile(share)
        if found is not None and reading.buckets:
            parts.append(f"p{share * 100:g} {number(found)}")
    return " · ".join(parts)


def number(value: float) -> str:
    """A count with separators, a fraction with three figures."""
    if math.isfinite(value) and value == int(value):
        return f"{int(value):,}"
    return f"{value:.3g}"
