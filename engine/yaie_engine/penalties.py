"""Changes to the logits that a request asks for: penalties, bias and forbidden end tokens.

Each row keeps the ids that matter to it in small arrays; one step gathers and scatters only those entries, for all rows
at once. Repetition penalty: Keskar et al., "CTRL" (2019); presence and frequency: as the OpenAI API defines them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .upload import upload

Ids = NDArray[np.int64]
Floats = NDArray[np.float32]


class TokenCounts:
    """The distinct tokens of one sequence, and how often each was generated (0: only in the prompt).

    Growing arrays, so that a step reads them without a Python loop; `push` is O(1) amortised.
    """

    __slots__ = ("_counts", "_ids", "_limit", "_size", "_slots")

    def __init__(self, prompt_token_ids: Sequence[int], limit: int) -> None:
        """`limit`: ids from here on are never sampled and left out."""
        known = np.unique(np.asarray([i for i in prompt_token_ids if 0 <= i < limit], dtype=np.int64))
        self._limit = limit
        self._size = len(known)
        self._ids = np.concatenate((known, np.zeros(64, dtype=np.int64)))
        self._counts = np.zeros(len(self._ids), dtype=np.float32)
        self._slots = {int(token): slot for slot, token in enumerate(known)}

    def push(self, token_id: int) -> None:
        """Count one generated token."""
        slot = self._slots.get(token_id)
        if slot is None:
            if not 0 <= token_id < self._limit:
                return
            slot = self._add(token_id)
        self._counts[slot] += 1

    def _add(self, token_id: int) -> int:
        slot = self._size
        if slot == len(self._ids):
            self._ids = np.concatenate((self._ids, np.zeros_like(self._ids)))
            self._counts = np.concatenate((self._counts, np.zeros_like(self._counts)))
        self._ids[slot] = token_id
        self._slots[token_id] = slot
        self._size += 1
        return slot

    @property
    def ids(self) -> Ids:
        return self._ids[: self._size]

    @property
    def counts(self) -> Floats:
        return self._counts[: self._size]


@dataclass(frozen=True, slots=True)
class Penalties:
    """The three strengths of one request."""

    repetition: float
    presence: float
    frequency: float


def penalise(logits: Tensor, rows: Sequence[tuple[int, TokenCounts, Penalties]]) -> None:
    """Apply repetition, then frequency and presence penalties in place to `logits` [rows, n] float32.

    `rows`: (row of `logits`, its counts, its penalties). A repeated token's logit is divided by the repetition penalty
    when positive, else multiplied by it; generated tokens then lose `frequency * count + presence`.
    """
    device = logits.device
    flat = _flat(logits, [(row, counts.ids) for row, counts, _ in rows])
    count = upload(np.concatenate([counts.counts for _, counts, _ in rows]), torch.float32, device)
    strengths = np.array([(p.repetition, p.presence, p.frequency) for _, _, p in rows], dtype=np.float32)
    spread = np.repeat(strengths, [len(counts.ids) for _, counts, _ in rows], axis=0)
    repetition, presence, frequency = upload(spread, torch.float32, device).unbind(1)
    values = logits.view(-1)[flat]
    values = torch.where(values > 0, values / repetition, values * repetition)
    values = values - frequency * count - presence * (count > 0)
    logits.view(-1)[flat] = values


def add_bias(logits: Tensor, rows: Sequence[tuple[int, Ids, Floats]]) -> None:
    """Add to single entries of `logits` [rows, n], in place: (row, ids, values); ids of a row are distinct."""
    values = upload(np.concatenate([values for _, _, values in rows]), torch.float32, logits.device)
    logits.view(-1).index_add_(0, _flat(logits, [(row, ids) for row, ids, _ in rows]), values)


def forbid(logits: Tensor, rows: Sequence[tuple[int, Ids]]) -> None:
    """Set entries of `logits` [rows, n] to -inf, in place: (row, ids)."""
    logits.view(-1).index_fill_(0, _flat(logits, rows), -torch.inf)


def _flat(logits: Tensor, rows: Sequence[tuple[int, Ids]]) -> Tensor:
    """Places of (row, ids) in the flat `logits` [rows, n]: int64, on their device."""
    return upload(np.concatenate([ids + row * logits.shape[1] for row, ids in rows]), torch.int64, logits.device)
