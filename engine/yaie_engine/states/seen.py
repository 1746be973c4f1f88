"""Kept states as a snapshot shows them: each below the longest other one that it goes on from. Imports no torch."""

from __future__ import annotations

import time
from collections.abc import Iterable

from yaie_engine.namespaces import shown
from yaie_engine.snapshot import StateView

from .kept import KeptState


def views_of(entries: Iterable[KeptState]) -> tuple[StateView, ...]:
    """All of them without texts; parents come first. Of hundreds this takes its time: not on the engine's thread."""
    above = _parents(entries)
    order = sorted(above, key=lambda kept: (kept.salt, len(kept.token_ids)))  # equal ones stay in the order of tokens
    places = {kept: place for place, kept in enumerate(order)}
    now = time.time()
    return tuple(_view(kept, above[kept], places, now) for kept in order)


def _parents(entries: Iterable[KeptState]) -> dict[KeptState, KeptState | None]:
    """The longest other state that each goes on from, in the order of salts and tokens.

    In that order what goes on from a state follows it without a gap, so those that may be above are a stack.
    """
    found: dict[KeptState, KeptState | None] = {}
    stack: list[KeptState] = []
    for kept in sorted(entries, key=lambda kept: (kept.salt, kept.token_ids)):
        while stack and not _goes_on(kept, stack[-1]):
            stack.pop()
        found[kept] = stack[-1] if stack else None
        stack.append(kept)
    return found


def _goes_on(kept: KeptState, above: KeptState) -> bool:
    return kept.salt == above.salt and kept.token_ids[: len(above.token_ids)] == above.token_ids


def _view(kept: KeptState, parent: KeptState | None, places: dict[KeptState, int], now: float) -> StateView:
    return StateView(
        label=kept.label,
        parent=None if parent is None else places[parent],
        num_tokens=len(kept.token_ids),
        token_ids=kept.token_ids[0 if parent is None else len(parent.token_ids) :],
        text="",
        num_bytes=kept.num_bytes,
        hits=kept.hits,
        pinned=kept.pinned,
        age_s=max(0.0, now - kept.used),
        namespace=shown(f"salt:{kept.salt}") if kept.salt else "",
    )
