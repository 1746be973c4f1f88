"""Whether the sampling kernel draws the torch sampler's tokens, at the width of the model's logits."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from yaie_cuda.specialisations.sampling import MOST_TOKENS
from yaie_engine.backends.kernels import Kernels
from yaie_engine.distribution import draw
from yaie_engine.kernel_draw import KernelDraw
from yaie_engine.params import SamplingParams
from yaie_engine.sampling_row import SamplingRow

PARAMS = (
    SamplingParams(temperature=0),
    SamplingParams(temperature=1),
    SamplingParams(temperature=0.7, top_k=5),
    SamplingParams(temperature=1.3, top_p=0.8),
    SamplingParams(temperature=0.9, top_k=40, top_p=0.95, min_p=0.02),
)
SPREAD = 8.0
"""Logits so far apart that few tokens share a row: rounding moves no draw from one token to the next."""


def draw_once(kernels: Kernels, vocab_size: int, device: torch.device) -> Tensor:
    """Token ids int64 [rows] that the kernel draws, one row per entry of PARAMS."""
    return KernelDraw(kernels.top_k_top_p_sample)(_scores(vocab_size, device), _rows())


def draw_refusal(kernels: Kernels, vocab_size: int, device: torch.device) -> str:
    """Why tokens are not drawn by the kernel; "" when it draws those of the torch sampler."""
    if vocab_size > MOST_TOKENS:
        return f"the sampling kernel takes up to {MOST_TOKENS} tokens, the model has {vocab_size}"
    try:
        found = draw_once(kernels, vocab_size, device).tolist()
    except Exception as error:  # whatever a kernel raises rules it out, nothing else
        return f"the sampling kernel failed: {type(error).__name__}: {(str(error).splitlines() or [''])[0][:160]}"
    scores, rows = _scores(vocab_size, device), _rows()
    best = scores.amax(-1)
    expected = [int(scores[0].argmax()), *draw(scores[1:], best[1:], rows[1:]).tolist()]
    return "" if found == expected else f"the sampling kernel draws {found}, torch draws {expected}"


def _scores(vocab_size: int, device: torch.device) -> Tensor:
    """Logits float32 [rows, vocab_size], the same on every device."""
    noise = torch.randn(len(PARAMS), vocab_size, generator=torch.Generator().manual_seed(5))
    return (noise * SPREAD).to(device)


def _rows() -> list[SamplingRow]:
    none = np.array([], dtype=np.int64)
    return [
        SamplingRow(params, seed=2**63 - 7 * i, index=i, prompt_token_ids=(), end_ids=none, limit=0)
        for i, params in enumerate(PARAMS)
    ]
