"""What changed last, by revision: reading what came after one costs what changed, however much is known."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
_FEW = 64


class Ledger(Generic[K]):
    """Keys in the order of their changes. `keep` says which are still of interest."""

    def __init__(self, keep: Callable[[K], bool]) -> None:
        self._keep, self._most = keep, _FEW
        self._keys: list[K] = []
        self._revisions: list[int] = []

    def note(self, revision: int, key: K) -> None:
        """The key changed; revisions never fall."""
        self._keys.append(key)
        self._revisions.append(revision)
        if len(self._keys) > self._most:
            self._tidy()

    def after(self, revision: int) -> list[K]:
        """The keys that changed after a revision, each once."""
        late = self._keys[bisect_right(self._revisions, revision) :]
        return [key for key in dict.fromkeys(late) if self._keep(key)]

    def _tidy(self) -> None:
        """Only the last change of a key matters."""
        newest: dict[K, int] = {}
        for key, revision in zip(self._keys, self._revisions, strict=True):
            newest.pop(key, None)
            if self._keep(key):
                newest[key] = revision
        self._keys, self._revisions = list(newest), list(newest.values())
        self._most = max(_FEW, 2 * len(newest))
