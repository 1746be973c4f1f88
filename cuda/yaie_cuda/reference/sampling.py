"""Drawing tokens, in torch: what the sampling ops mean. Sums are float64.

The order of operations and the random stream are those of the engine's own sampler.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

_LOW = 0xFFFFFFFF
_COLDEST = 1e-30


def uniform(seed: Tensor, counter: Tensor) -> Tensor:
    """One number in [0, 1) per row, float64 with 24 random bits: Philox4x32-10 of key `seed`, counter (`counter`, 0).

    Both are int64 [rows]; `counter` is choice index + (output position << 32). Algorithm: Salmon, Moraes, Dror, Shaw,
    "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
    """
    c0, c1 = counter & _LOW, counter >> 32 & _LOW
    c2, c3 = torch.zeros_like(c0), torch.zeros_like(c0)
    k0, k1 = seed & _LOW, seed >> 32 & _LOW
    for _ in range(10):
        # int64 products wrap, which leaves their 64 bits right.
        low, high = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        c0, c1, c2, c3 = (high >> 32 & _LOW) ^ c1 ^ k0, high & _LOW, (low >> 32 & _LOW) ^ c3 ^ k1, low & _LOW
        k0, k1 = k0 + 0x9E3779B9 & _LOW, k1 + 0xBB67AE85 & _LOW
    return (c0 >> 8).double() * 2.0**-24


def top_k_top_p_sample(
    logits: Tensor,
    temperature: Tensor,
    top_k: Tensor,
    top_p: Tensor,
    min_p: Tensor,
    seed: Tensor,
    counter: Tensor,
    out: Tensor,
) -> None:
    """Draw a token id per row of `logits` [rows, vocab] into `out` int64 [rows].

    `temperature` float32: 0 takes the best token, of equal ones the lowest id. `top_k` int32: off outside of 1 to
    vocab - 1. `top_p` float32: 1 is off. `min_p` float32: 0 is off. `seed`, `counter` int64: as `uniform`. All [rows].
    Kept is a prefix of the order (logit descending, id ascending): the k best; of these the shortest prefix whose share
    of their mass reaches top_p; of these those with at least min_p times the best probability; the best always. The
    draw is the inverse CDF in the order of ids. A row with NaN or +inf, or without a finite value, gets -1.
    """
    scores = logits.float()
    if not scores.shape[0]:
        return
    best = scores.amax(-1, keepdim=True)
    usable = torch.isfinite(best)
    heat = temperature.clamp_min(_COLDEST)[:, None]
    weights = torch.exp(((scores - best) / heat).double())
    weights = weights.masked_fill(~usable, 0) if not bool(usable.all()) else weights
    weights = weights * kept(scores, weights, top_k, top_p, min_p)
    upto = weights.cumsum(-1)
    target = uniform(seed, counter)[:, None] * upto[:, -1:]
    target = torch.minimum(target, torch.nextafter(upto[:, -1:], torch.zeros_like(target)))
    drawn = torch.searchsorted(upto, target, right=True).clamp_(max=scores.shape[1] - 1)[:, 0]
    tokens = torch.where(temperature == 0, scores.argmax(-1), drawn)
    out.copy_(torch.where(usable[:, 0], tokens, -1))


def kept(scores: Tensor, weights: Tensor, top_k: Tensor, top_p: Tensor, min_p: Tensor) -> Tensor:
    """Which tokens may be drawn: bool [rows, vocab]. `weights` float64 are 1 for the best token of a row."""
    num = scores.shape[1]
    ids = scores.argsort(dim=-1, descending=True, stable=True)
    ranked = weights.gather(-1, ids)
    upto = ranked.cumsum(-1)
    limit = torch.where((top_k > 0) & (top_k < num), top_k, num).long()[:, None]
    share = top_p.double()[:, None]
    place = torch.arange(num, device=scores.device)
    mass = upto.gather(-1, limit - 1)
    inside = (place < limit) & ((F.pad(upto[:, :-1], (1, 0)) < share * mass) | (share >= 1) | (place == 0))
    inside &= (ranked >= min_p.double()[:, None]) | (place == 0)
    return torch.zeros_like(inside).scatter_(-1, ids, inside)


def apply_penalties(
    logits: Tensor,
    token_ids: Tensor,
    counts: Tensor,
    row_starts: Tensor,
    repetition: Tensor,
    presence: Tensor,
    frequency: Tensor,
) -> None:
    """Penalise in place, in `logits` float32 [rows, vocab], the tokens that each row has seen.

    Row i's tokens are entries row_starts[i] to row_starts[i + 1] of `token_ids` int64 and `counts` float32 (how often
    each was generated; 0: it is in the prompt only); ids of a row are distinct, those outside of the vocabulary are
    passed over. A token's logit is divided by `repetition` when positive, else multiplied by it (Keskar et al., "CTRL",
    2019); then `frequency * count` and, where the count is not 0, `presence` are subtracted (the OpenAI API). The
    strengths are float32 [rows], `row_starts` int32 [rows + 1].
    """
    rows = torch.repeat_interleave(torch.arange(len(repetition), device=logits.device), row_starts.diff().long())
    known = (token_ids >= 0) & (token_ids < logits.shape[1])
    rows, token_ids, counts = rows[known], token_ids[known], counts[known]
    values = logits[rows, token_ids]
    values = torch.where(values > 0, values / repetition[rows], values * repetition[rows])
    logits[rows, token_ids] = values - frequency[rows] * counts - presence[rows] * (counts > 0)
