"""Batches: documents cut into tokens and packed whole into rows of one length."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from random import Random

import torch
from tokenizers import Tokenizer
from torch import Tensor

from .corpus import Document, long, short
from .network import IGNORED

TOKENS_PER_BATCH = 2048  # of one worker
ROW_SHARES = {256: 0.82, 1024: 0.09, 2048: 0.07, 4096: 0.02}
_OPEN_ROWS = 24


class Packer:
    """Fills rows of `length` with whole documents; short leftovers are padded and not learned."""

    def __init__(self, tokenizer: Tokenizer, length: int, source: Callable[[], Document]) -> None:
        self.tokenizer, self.length, self.source = tokenizer, length, source
        self.open: list[tuple[list[int], list[int]]] = []

    def encode(self, document: Document) -> tuple[list[int], list[int]]:
        """Return ids and targets; a target is the next id where it is to be learned."""
        ids: list[int] = []
        learned: list[bool] = []
        for encoding, (_, learn) in zip(self.tokenizer.encode_batch([t for t, _ in document]), document, strict=True):
            ids += encoding.ids
            learned += [learn] * len(encoding.ids)
        targets = [i if learn else IGNORED for i, learn in zip(ids[1:], learned[1:], strict=True)]
        return ids, [*targets, IGNORED]

    def row(self) -> tuple[list[int], list[int]]:
        """Return the next full row."""
        while True:
            ids, targets = self.encode(self.source())
            if len(ids) > self.length:
                continue
            fitting = [row for row in self.open if len(row[0]) + len(ids) <= self.length]
            if fitting:
                best = max(fitting, key=lambda row: len(row[0]))
                best[0].extend(ids)
                best[1].extend(targets)
            else:
                self.open.append((ids, targets))
            if len(self.open) > _OPEN_ROWS:
                fullest = max(self.open, key=lambda row: len(row[0]))
                self.open.remove(fullest)
                gap = self.length - len(fullest[0])
                return fullest[0] + [0] * gap, fullest[1] + [IGNORED] * gap

    def batch(self) -> tuple[Tensor, Tensor]:
        """Return ids and targets [rows, length]."""
        rows = [self.row() for _ in range(max(1, TOKENS_PER_BATCH // self.length))]
        return torch.tensor([ids for ids, _ in rows]), torch.tensor([targets for _, targets in rows])


class Batches:
    """An endless supply of batches, most of short rows, some of long ones; the same for the same seed."""

    def __init__(self, tokenizer: Tokenizer, seed: int) -> None:
        self.rng = Random(seed)
        self.credit: dict[int, float] = defaultdict(float)
        self.packers = {n: Packer(tokenizer, n, self._source(n)) for n in ROW_SHARES}

    def _source(self, length: int) -> Callable[[], Document]:
        if length == min(ROW_SHARES):
            return lambda: short(self.rng)
        return lambda: long(self.rng, length) if self.rng.random() < 0.7 else short(self.rng)

    def next(self) -> tuple[Tensor, Tensor]:
        """Return the next batch; the row lengths take turns by their shares."""
        for length, share in ROW_SHARES.items():
            self.credit[length] += share
        length = max(self.credit, key=lambda n: self.credit[n])
        self.credit[length] -= 1
        return self.packers[length].batch()
