"""Kept states as a snapshot shows them: each below the longest other one that it goes on from. Imports no torch."""

from __future__ import annotations

import time
from collections.abc import Iterable

from yaie_engine.namespaces import shown
from yaie_engine.snapshot import StateView
from yaie_engine.store.index import PrefixIndex

from .kept import KeptState


def views_of(entries: Iterable[KeptState]) -> tuple[StateView, ...]:
    """All of them without texts; parents come first."""
    by_salt: dict[str, PrefixIndex[int]] = {}
    found: list[StateView] = []
    now = time.time()
    for kept in sorted(entries, key=lambda kept: (kept.salt, len(kept.token_ids), kept.token_ids)):
        index = by_salt.setdefault(kept.salt, PrefixIndex())
        parent = max((place for _, place in index.contained(kept.token_ids)), default=None)  # the last is the longest
        index.put(kept.token_ids, len(found))
        found.append(
            StateView(
                label=kept.label,
                parent=parent,
                num_tokens=len(kept.token_ids),
                token_ids=kept.token_ids[0 if parent is None else found[parent].num_tokens :],
                text="",
                num_bytes=kept.num_bytes,
                hits=kept.hits,
                pinned=kept.pinned,
                age_s=max(0.0, now - kept.used),
                namespace=shown(f"salt:{kept.salt}") if kept.salt else "",
            )
        )
    return tuple(found)
