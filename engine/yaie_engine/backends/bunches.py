"""Which decodes of a step are attended together in torch: rows of similar length, and those below one prefix.

A batched product pads to its longest row, and every further product has its fixed cost: rows are parted where the
padding would cost more. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from yaie_engine.sharing import share

CALL = 4096
"""What a bunch of its own costs, in (row, token) pairs that could be attended meanwhile.

On two CPU cores parting rows to save 2,000 pairs made a step of a 100M Llama no faster and at times slower; sharing
15,000 made it a quarter shorter.
"""


@dataclass(frozen=True, slots=True)
class Bunch:
    """Decodes by their place in the step, attended in one call. Their first `prefix` tokens lie in the same blocks."""

    rows: tuple[int, ...]
    prefix: int = 0


def bunches(tables: Sequence[list[int]], contexts: Sequence[int], block_size: int) -> list[Bunch]:
    """Every decode in one bunch; `contexts` count the computed token.

    A prefix is read once where that saves more than a call costs. Takes time in proportion to the blocks.
    """
    found: list[Bunch] = []
    if tables and sum(contexts) > CALL and len(contexts) > 1:
        sharing = share(tables, contexts, block_size)
        place = 0
        for count, prefix in [] if sharing is None else sharing.groups:
            if sharing is not None and (count - 1) * prefix > CALL:
                found.append(Bunch(sharing.order[place : place + count], prefix))
            place += count
    taken = {row for bunch in found for row in bunch.rows}
    alone = sorted((row for row in range(len(contexts)) if row not in taken), key=contexts.__getitem__)
    return found + [Bunch(tuple(rows)) for rows in _parted(alone, contexts)]


def _parted(rows: list[int], contexts: Sequence[int]) -> list[list[int]]:
    """Rows, shortest context first, cut where that saves the most padding, as long as it saves more than a call."""
    if not rows:
        return []
    longest = contexts[rows[-1]]
    saved = [count * (longest - contexts[rows[count - 1]]) for count in range(1, len(rows))]
    best = max(saved, default=0)
    if best <= CALL:
        return [rows]
    cut = saved.index(best) + 1
    return _parted(rows[:cut], contexts) + _parted(rows[cut:], contexts)
