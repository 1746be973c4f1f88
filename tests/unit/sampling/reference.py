"""A slow sampler in plain Python and float64, written from the definitions: what the real one must agree with."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from yaie_engine.params import SamplingParams


@dataclass(frozen=True)
class Expected:
    """`margin`: how far the draw is from taking another token; below about 1e-5 float32 may differ."""

    token: int
    kept: list[int]
    margin: float


def adjusted(
    logits: Sequence[float], params: SamplingParams, prompt: Sequence[int], output: Sequence[int]
) -> list[float]:
    """Logits after penalties and bias."""
    scores = list(logits)
    counts = Counter(output)
    for token in set(prompt) | set(output):
        x = scores[token]
        scores[token] = x / params.repetition_penalty if x > 0 else x * params.repetition_penalty
    for token, count in counts.items():
        scores[token] -= params.frequency_penalty * count + params.presence_penalty
    for token, bias in params.logit_bias.items():
        scores[token] += bias
    return scores


def expected(scores: Sequence[float], params: SamplingParams, noise: float) -> Expected:
    """Token and kept set for scores after penalties and a number in [0, 1)."""
    order = sorted(range(len(scores)), key=lambda i: (-scores[i], i))
    best = scores[order[0]]
    if params.temperature == 0:
        runner_up = scores[order[1]] if len(order) > 1 else -math.inf
        return Expected(order[0], order[:1], best - runner_up)
    weight = [math.exp((x - best) / params.temperature) for x in scores]
    kept, margin = order, 1.0
    if params.top_k > 0:
        kept = kept[: params.top_k]
    mass, total, taken = 0.0, sum(weight[i] for i in kept), []
    for token in kept:
        if taken and mass >= params.top_p * total and params.top_p < 1:
            break
        margin = min(margin, abs(mass / total - params.top_p)) if taken and params.top_p < 1 else margin
        taken.append(token)
        mass += weight[token]
    if params.top_p < 1:
        margin = min(margin, abs(mass / total - params.top_p))
    if params.min_p:
        margin = min([margin, *(abs(weight[i] - params.min_p) for i in taken if i != order[0])])
    kept = sorted(token for token in taken if token == order[0] or weight[token] >= params.min_p)
    total = sum(weight[token] for token in kept)
    mass = 0.0
    for token in kept:
        mass += weight[token] / total
        margin = min(margin, abs(mass - noise))
        if mass > noise:
            return Expected(token, kept, margin)
    return Expected(kept[-1], kept, 0.0)
