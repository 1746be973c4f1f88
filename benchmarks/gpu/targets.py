"""What the kernels and the engine are to reach on one H200, and whether a run reached it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from .records import Measurement


@dataclass(frozen=True, slots=True)
class Target:
    """`goal` in `unit`; reached at or above it, or at or below it where `most`. The worst measurement counts."""

    key: str
    words: str
    goal: float
    unit: str
    most: bool = False

    @property
    def goal_words(self) -> str:
        """The goal with its sign."""
        return f"{'at most' if self.most else 'at least'} {self.goal:g} {self.unit}"


TARGETS = (
    Target("decode", "decode attention, batch 32 to 128, 4k to 16k tokens: share of copy bandwidth", 85, "%"),
    Target("prefill", "prefill attention, causal, head size 128, 8k and 16k tokens", 300, "TFLOP/s"),
    Target("cascade", "cascade over our own flat decode, batch 64, 4k tokens shared", 8, "times"),
    Target("cascade-never-slower", "cascade never slower than flat decode (3 % is noise)", 0.97, "times"),
    Target("kv-write", "KV write: share of copy bandwidth", 75, "%"),
    Target("sampling", "sampling, 128 rows of 128k logits", 0.25, "ms", most=True),
    Target("launch", "one launch, time of the host", 5, "us", most=True),
    Target("launch-checked", "one launch with an op's checks, time of the host", 5, "us", most=True),
    Target("decode-8b", "8B-shaped decode at batch 1: share of the weight-bandwidth bound", 80, "%"),
    Target("workload", "nano-vllm workload over transformers continuous batching", 3, "times"),
)
BY_KEY = {target.key: target for target in TARGETS}


@dataclass(frozen=True, slots=True)
class Verdict:
    """`reached` is the worst figure that counts for the target; None: nothing was measured."""

    target: Target
    reached: float | None
    where: str = ""

    @property
    def met(self) -> bool | None:
        """None when nothing was measured."""
        if self.reached is None:
            return None
        return self.reached <= self.target.goal if self.target.most else self.reached >= self.target.goal

    @property
    def words(self) -> str:
        """ "met", "missed" with the distance, or "unmeasured"."""
        if self.reached is None:
            return "unmeasured"
        share = abs(self.reached / self.target.goal - 1)
        if self.met:
            return f"met, {share:.1%} to spare"
        return f"MISSED by {share:.1%}"

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {**asdict(self.target), "reached": self.reached, "met": self.met, "where": self.where}


def judge(measurements: Iterable[Measurement]) -> list[Verdict]:
    """One verdict per target, in their order.

    Raises:
        KeyError: a measurement names a target that does not exist.
    """
    found: dict[str, list[Measurement]] = {target.key: [] for target in TARGETS}
    for measurement in measurements:
        if measurement.target:
            found[measurement.target].append(measurement)
    return [_verdict(target, found[target.key]) for target in TARGETS]


def _verdict(target: Target, measurements: list[Measurement]) -> Verdict:
    figures = [(each.judged, each.name) for each in measurements if each.judged is not None]
    if not figures:
        return Verdict(target, None)
    reached, where = max(figures) if target.most else min(figures)
    return Verdict(target, reached, where)
