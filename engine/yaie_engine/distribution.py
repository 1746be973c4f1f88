"""Draws one token per row: temperature, then top-k, top-p and min-p, then the inverse CDF in token-id order.

Probabilities are float32 softmax values and running sums are float64. The kept set is a prefix of the order
(logit descending, id ascending): the k best; then the shortest prefix whose share of their mass reaches top_p (top-p:
Holtzman et al., "The Curious Case of Neural Text Degeneration", 2019); then those with at least min_p times the best
probability (min-p: Nguyen et al., 2024). The best token is always kept. Nothing of a row depends on other rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from .philox import uniform
from .ranking import ordered_topk
from .sampling_row import SamplingRow

_CHUNK = 512
_CANDIDATES = (128, 2048)
"""Filtered rows try these many best tokens before they fall back to a full sort of the vocabulary."""
_AT_ONCE = 2**20
"""On a CPU so many logits are drawn from at a time: fresh memory for more costs more than the arithmetic in it."""
_COLDEST = 1e-30
_GRID = 2.0**-25
"""Adding and taking away this puts float32 values in [0, 1] on multiples of 2**-48, whose float64 sums are exact."""


def draw(logits: Tensor, best: Tensor, rows: Sequence[SamplingRow]) -> Tensor:
    """Token ids int64 [rows] from adjusted `logits` [rows, n] with finite row maxima `best` [rows], in any dtype."""
    if logits.device.type != "cpu":
        return _draw(logits.float(), best.float(), rows)
    few = max(1, _AT_ONCE // logits.shape[1])
    parts = zip(logits.split(few), best.split(few), strict=True)
    return torch.cat([_draw(part.float(), top.float(), rows[i * few :][:few]) for i, (part, top) in enumerate(parts)])


def _draw(logits: Tensor, best: Tensor, rows: Sequence[SamplingRow]) -> Tensor:
    """`draw` of float32 rows at once."""
    device = logits.device
    noise = uniform([row.seed for row in rows], [row.index for row in rows], [row.num_output for row in rows])
    noise_ = torch.from_numpy(noise.astype(np.float64)).to(device)
    probs = probabilities(logits, best, [row.params.temperature for row in rows])
    filtered: list[int] = []
    plain: list[int] = []
    for i, row in enumerate(rows):
        (filtered if _filters(row, logits.shape[1]) else plain).append(i)
    tokens = torch.empty(len(rows), dtype=torch.int64, device=device)
    if filtered:
        chosen = [rows[i] for i in filtered]
        index = torch.tensor(filtered, device=device)
        tokens[index] = _draw_filtered(_pick(logits, index), _pick(probs, index), noise_[index], chosen)
    if plain:
        index = torch.tensor(plain, device=device)
        tokens[index] = _draw_plain(_pick(probs, index), noise_[index], [rows[i].params.min_p for i in plain])
    return tokens


def _pick(values: Tensor, rows: Tensor) -> Tensor:
    """Rows of `values` in ascending order; all of them need no copy."""
    return values if len(rows) == len(values) else values[rows]


def probabilities(logits: Tensor, best: Tensor, temperatures: Sequence[float]) -> Tensor:
    """softmax((logits - best) / temperature): float32 [rows, n rounded up to whole chunks], zero in the padding.

    The maximum is taken off before the division, so that no temperature can overflow.
    """
    num = logits.shape[1]
    scaled = logits.new_empty(len(logits), -(-num // _CHUNK) * _CHUNK)
    torch.sub(logits, best[:, None], out=scaled[:, :num])
    scaled[:, num:] = -torch.inf
    if any(temperature != 1 for temperature in temperatures):
        heat = torch.tensor([max(t, _COLDEST) for t in temperatures], dtype=torch.float32, device=logits.device)
        scaled.div_(heat[:, None])
    probs = F.softmax(scaled, dim=-1)
    # A GPU may sum in another order when the batch changes; on the grid every order gives the same sum.
    return probs.add_(_GRID).sub_(_GRID) if probs.is_cuda else probs


def _filters(row: SamplingRow, num: int) -> bool:
    return row.params.top_p < 1 or 0 < row.params.top_k < num


def _draw_plain(probs: Tensor, noise: Tensor, min_p: Sequence[float]) -> Tensor:
    """Inverse CDF over whole rows `probs` [rows, chunks * 512] in two levels: first the chunk, then the token in it."""
    if any(min_p):
        floor = torch.tensor(min_p, dtype=torch.float32, device=probs.device)[:, None] * probs.amax(-1, keepdim=True)
        probs = probs * (probs >= floor)
    chunked = probs.view(len(probs), -1, _CHUNK)
    sums = chunked.sum(-1, dtype=torch.float64 if probs.is_cuda else torch.float32)
    upto = sums.cumsum(-1, dtype=torch.float64)
    target = noise * upto[:, -1]
    chunk = torch.searchsorted(upto, target[:, None], right=True).clamp_(max=upto.shape[1] - 1)
    rest = target - (upto.gather(1, chunk) - sums.gather(1, chunk))[:, 0]
    inside = chunked[torch.arange(len(probs), device=probs.device), chunk[:, 0]]
    return chunk[:, 0] * _CHUNK + _invert(inside, rest)


def _invert(weights: Tensor, target: Tensor) -> Tensor:
    """Index of the first running sum of `weights` [rows, n] above `target` [rows]; its weight is never zero."""
    upto = weights.cumsum(-1, dtype=torch.float64)
    last = torch.nextafter(upto[:, -1], torch.zeros_like(target))
    target = torch.minimum(target, last).clamp_(min=0)
    return torch.searchsorted(upto, target[:, None], right=True)[:, 0].clamp_(max=weights.shape[1] - 1)


def _draw_filtered(logits: Tensor, probs: Tensor, noise: Tensor, rows: Sequence[SamplingRow]) -> Tensor:
    """Rows with top-k or top-p: rank only as many candidates as the kept set needs."""
    num = logits.shape[1]
    tokens = torch.empty(len(rows), dtype=torch.int64, device=logits.device)
    waiting = list(range(len(rows)))
    for size in [size for size in _CANDIDATES if size < num] + [num]:
        tried = [i for i in waiting if size == num or rows[i].params.top_k <= size]
        if not tried:
            continue
        index = torch.tensor(tried, device=logits.device)
        _, ids = ordered_topk(_pick(logits, index), size)
        weights = _pick(probs, index).gather(1, ids)
        kept, whole = keep(weights, [rows[i] for i in tried], num)
        tokens[index] = _draw_ranked(ids, weights * kept, noise[index], whole=size == num)
        finished = {i for i, done in zip(tried, whole.tolist(), strict=True) if done}
        waiting = [i for i in waiting if i not in finished]
    return tokens


def _draw_ranked(ids: Tensor, weights: Tensor, noise: Tensor, whole: bool) -> Tensor:
    """Ids int64 [rows], drawn in the order of ids by `weights` [rows, size] of the ranked `ids`; `whole`: of all."""
    if whole:
        weights = torch.empty_like(weights).scatter_(1, ids, weights)
        return _invert(weights, noise * weights.sum(-1, dtype=torch.float64))
    ids, order = ids.sort(-1)
    weights = weights.gather(1, order)
    place = _invert(weights, noise * weights.sum(-1, dtype=torch.float64))
    return ids.gather(1, place[:, None])[:, 0]


def keep(weights: Tensor, rows: Sequence[SamplingRow], num: int) -> tuple[Tensor, Tensor]:
    """Which of the ranked candidates stay: bool [rows, size]; and whether a row's set is complete: bool [rows].

    `weights` [rows, size]: probabilities of the best `size` of `num` tokens, best first.
    """
    device, size = weights.device, weights.shape[1]
    top_k = torch.tensor([_limit(row, num) for row in rows], device=device)[:, None]
    top_p = torch.tensor([row.params.top_p for row in rows], dtype=torch.float64, device=device)[:, None]
    min_p = torch.tensor([row.params.min_p for row in rows], dtype=torch.float32, device=device)[:, None]
    upto = weights.cumsum(-1, dtype=torch.float64)
    before = F.pad(upto[:, :-1], (1, 0))
    mass = torch.where(top_k < num, upto.gather(1, top_k.clamp(max=size) - 1), 1.0)
    place = torch.arange(size, device=device)
    kept = (place < top_k) & ((before < top_p * mass) | (top_p >= 1) | (place == 0))
    complete = (top_k[:, 0] <= size) | ((upto[:, -1:] >= top_p * mass)[:, 0] & (top_p[:, 0] < 1))
    return kept & (weights >= min_p * weights[:, :1]), complete


def _limit(row: SamplingRow, num: int) -> int:
    return row.params.top_k if 0 < row.params.top_k < num else num
