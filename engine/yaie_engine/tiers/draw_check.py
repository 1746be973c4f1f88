"""Whether the sampling kernels draw the torch sampler's tokens, at the width of the model's logits."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from yaie_cuda.specialisations.sampling import MOST_TOKENS
from yaie_engine.backends.kernels import Kernels
from yaie_engine.device_errors import lost
from yaie_engine.distribution import draw
from yaie_engine.kernel_draw import KernelDraw
from yaie_engine.params import SamplingParams
from yaie_engine.penalties import Penalties, TokenCounts, penalise
from yaie_engine.sampling_row import SamplingRow

PARAMS = (
    SamplingParams(temperature=0),
    SamplingParams(temperature=1),
    SamplingParams(temperature=0.7, top_k=5),
    SamplingParams(temperature=1.3, top_p=0.8),
    SamplingParams(temperature=0.9, top_k=40, top_p=0.95, min_p=0.02),
    SamplingParams(temperature=0, repetition_penalty=1.7, presence_penalty=0.3, frequency_penalty=0.4),
)
SEEN = 64
"""Tokens that are penalised, among them the best, which then is best no more."""
SPREAD = 8.0
"""Logits so far apart that few tokens share a row: rounding moves no draw from one token to the next."""


def draw_once(kernels: Kernels, vocab_size: int, device: torch.device) -> Tensor:
    """Token ids int64 [rows] that the kernels draw, one row per entry of PARAMS."""
    return _drawn(KernelDraw(kernels.top_k_top_p_sample, kernels.apply_penalties), vocab_size, device)[0]


def draw_refusal(kernels: Kernels, vocab_size: int, device: torch.device) -> str:
    """Why tokens are not drawn by the kernels; "" when they draw those of the torch sampler."""
    if vocab_size > MOST_TOKENS:
        return f"the sampling kernel takes up to {MOST_TOKENS} tokens, the model has {vocab_size}"
    try:
        draw_kernel = KernelDraw(kernels.top_k_top_p_sample, kernels.apply_penalties)
        drawn, penalised = _drawn(draw_kernel, vocab_size, device)
        found = drawn.tolist()
    except Exception as error:  # whatever a kernel raises rules it out, nothing else
        if lost(error) is not None:
            raise
        return f"the sampling kernel failed: {type(error).__name__}: {(str(error).splitlines() or [''])[0][:160]}"
    scores, rows = _scores(vocab_size, device), _rows(vocab_size)
    penalise(scores, _counted(rows))
    if not torch.equal(scores, penalised):
        return "the penalties kernel gives other logits than torch"
    best = scores.amax(-1)
    expected = [
        int(scores[i].argmax()) if row.params.greedy else int(draw(scores[i : i + 1], best[i : i + 1], [row]))
        for i, row in enumerate(rows)
    ]
    return "" if found == expected else f"the sampling kernel draws {found}, torch draws {expected}"


def _drawn(draw_kernel: KernelDraw, vocab_size: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Token ids int64 [rows], and the penalised logits float32 [rows, vocab_size] that they were drawn from."""
    scores, rows = _scores(vocab_size, device), _rows(vocab_size)
    draw_kernel.penalise(scores, _counted(rows))
    return draw_kernel(scores, rows), scores


def _counted(rows: list[SamplingRow]) -> list[tuple[int, TokenCounts, Penalties]]:
    return [(i, row.counts, row.penalties) for i, row in enumerate(rows) if row.counts is not None]


def _scores(vocab_size: int, device: torch.device) -> Tensor:
    """Logits float32 [rows, vocab_size], the same on every device."""
    noise = torch.randn(len(PARAMS), vocab_size, generator=torch.Generator().manual_seed(5))
    return (noise * SPREAD).to(device)


def _rows(vocab_size: int) -> list[SamplingRow]:
    """A row per entry of PARAMS; tokens that spread over the vocabulary were seen, every other one generated."""
    none = np.array([], dtype=np.int64)
    seen = [
        *range(0, vocab_size, max(1, vocab_size // SEEN)),
        int(_scores(vocab_size, torch.device("cpu"))[-1].argmax()),
    ]
    rows = [
        SamplingRow(params, seed=2**63 - 7 * i, index=i, prompt_token_ids=seen, end_ids=none, limit=vocab_size)
        for i, params in enumerate(PARAMS)
    ]
    for row in rows:
        if row.counts is not None:
            for token in seen[::2]:
                row.counts.push(token)
    return rows
