"""Records of whole states on their way from the disk into memory, where the scheduler finds them. Any thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from yaie_engine.store.index import SHORTEST
from yaie_engine.store.prefix_store import Entry, PrefixStore
from yaie_engine.store.reading import Awaited, RecordReader

from .kept import KeptState, KeptStates

if TYPE_CHECKING:
    from torch import Tensor

    from yaie_engine.engine import LLMEngine

StateRecord = tuple[object, "Tensor | None"]
"""A state, and the logits of its last token where these are known."""


class StateReader(RecordReader[StateRecord]):
    """A state cannot be cut: only a record all of whose tokens a prompt begins with is of use."""

    def __init__(self, store: PrefixStore[StateRecord], engine: LLMEngine, kept: KeptStates) -> None:
        super().__init__(store, engine)
        self._kept = kept

    def known(self, token_ids: list[int]) -> int:
        """As above."""
        found = self._kept.longest(token_ids, "")
        return 0 if found is None else len(found.token_ids)

    def find(self, token_ids: list[int], known: int) -> Entry | None:
        """As above; nothing while nothing may be reused, and nothing that is in memory already."""
        if self._kept.paused:
            return None
        fitting = (
            entry
            for entry in self._store.contained(token_ids)
            if len(entry.token_ids) >= known + SHORTEST
            and self._kept.goes_on(len(entry.token_ids), len(token_ids))
            and self._kept.get(entry.token_ids) is None
        )
        return max(fitting, key=lambda entry: len(entry.token_ids), default=None)

    def bring(self, token_ids: list[int], spent: list[object] | None = None) -> int:
        """As above; a state that was read is kept."""
        known = self.known(token_ids)
        entry = self.find(token_ids, known)
        return 0 if entry is None else self.take_in(entry)

    def take_in(self, entry: Entry) -> int:
        """Read a record into memory; of how many tokens, none where that fails or there is no room."""
        found = None if self.changed else self._store.read(entry)
        if found is None or self.changed:
            return 0
        state, logits = found
        there = self._kept.put(KeptState(entry.token_ids, "", state, logits, entry.num_bytes))
        return len(entry.token_ids) if there else 0

    def restored(self, awaited: Awaited) -> int:
        """As above."""
        there = self.known(awaited.token_ids)
        return there if awaited.known < there <= self._store.covers(awaited.token_ids, awaited.came) else 0
