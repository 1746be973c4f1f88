"""Whether peers give the same tokens in float32: equal up to the first near tie, where rounding alone decides."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from yaie_magic.bench.trial import UNSEEN, Trial
from yaie_magic.bench.workloads import Workload

NEAR_TIE = 1e-3
"""Logits closer than this to the best one are a tie: sums of float32 in another order move them by 1e-5 to 1e-4."""
Judge = Callable[[list[dict[str, Any]]], list[float]]


@dataclass(frozen=True, slots=True)
class Agreement:
    """One peer against this engine on one workload, in requests: equal throughout, equal up to a near tie, different.

    `widest` is the largest distance from the best logit at a first difference; `distinct` how many different tokens the
    answers hold, since answers that repeat one token prove little; `tokens` how many they hold in all.
    """

    peer: str
    workload: str
    equal: int = 0
    tied: int = 0
    different: int = 0
    widest: float = 0.0
    distinct: int = 0
    tokens: int = 0
    problem: str = ""


def compare(peer: str, workload: Workload, ours: Trial, theirs: Trial, judge: Judge) -> Agreement:
    """Each request's tokens one by one; the judge (the plain model in float32) rules on first differences."""
    cases = []
    for ask, a, b in zip(workload.asks, ours.served, theirs.served, strict=True):
        place = first_difference(a.token_ids, b.token_ids)
        if place is not None:
            ids = [*ask.prompt, *a.token_ids[:place]]
            cases.append({"ids": ids, "tokens": [a.token_ids[place], b.token_ids[place]]})
    gaps = judge(cases) if cases else []
    tied = sum(gap <= NEAR_TIE for gap in gaps)
    distinct = len({token_id for each in ours.served for token_id in each.token_ids})
    equal = len(workload.asks) - len(cases)
    tokens = sum(len(each.token_ids) for each in ours.served)
    return Agreement(peer, workload.name, equal, tied, len(gaps) - tied, max(gaps, default=0.0), distinct, tokens)


def first_difference(first: Sequence[int], second: Sequence[int]) -> int | None:
    """Where two answers part; None when one is the beginning of the other, or from where on a token was not seen."""
    for place, (a, b) in enumerate(zip(first, second, strict=False)):
        if a != b:
            return None if UNSEEN in (a, b) else place
    return None


def gap(model: Any, ids: Sequence[int], tokens: Sequence[int]) -> float:
    """How far the worse of the tokens is below the best logit after `ids`."""
    import torch

    logits = model(torch.tensor([list(ids)]), logits_to_keep=1).logits[0, -1].float()
    return float(logits.max() - logits[list(tokens)].min())


def told(found: Mapping[str, Any]) -> str:
    """One agreement as JSON, in words."""
    if found["problem"]:
        return f"not compared: {found['problem']}"
    total = found["equal"] + found["tied"] + found["different"]
    parts = [f"{found['equal']} of {total} equal"]
    if found["tied"]:
        parts.append(f"{found['tied']} up to a near tie")
    if found["different"]:
        parts.append(f"**{found['different']} different** (by up to {found['widest']:.2g})")
    return ", ".join(parts)
