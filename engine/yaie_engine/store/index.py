"""Prefixes by their tokens. Imports no torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

from yaie_engine.common_start import common_start

T = TypeVar("T")
SHORTEST = 16
"""Prefixes below so many tokens are not worth a record."""
_Key = tuple[int, ...]


class PrefixIndex(Generic[T]):
    """Values by token ids. The first tokens find candidates, and every token is compared."""

    def __init__(self) -> None:
        self._groups: dict[_Key, dict[_Key, T]] = {}

    def __len__(self) -> int:
        return sum(len(group) for group in self._groups.values())

    def __iter__(self) -> Iterator[tuple[_Key, T]]:
        for group in self._groups.values():
            yield from group.items()

    def put(self, token_ids: Sequence[int], value: T) -> None:
        """Note `value` under these ids.

        Raises:
            ValueError: there are fewer than SHORTEST.
        """
        if len(token_ids) < SHORTEST:
            raise ValueError(f"{len(token_ids)} tokens, at least {SHORTEST} are needed")
        self._groups.setdefault(tuple(token_ids[:SHORTEST]), {})[tuple(token_ids)] = value

    def get(self, token_ids: Sequence[int]) -> T | None:
        """The value of exactly these ids."""
        return self._groups.get(tuple(token_ids[:SHORTEST]), {}).get(tuple(token_ids))

    def drop(self, token_ids: Sequence[int]) -> None:
        """Forget these ids."""
        key = tuple(token_ids[:SHORTEST])
        group = self._groups.get(key, {})
        group.pop(tuple(token_ids), None)
        if not group:
            self._groups.pop(key, None)

    def common(self, token_ids: Sequence[int]) -> Iterator[tuple[_Key, T, int]]:
        """Every entry that begins like these ids, and how many leading tokens they have in common: never only the same
        hash."""
        group = self._groups.get(tuple(token_ids[:SHORTEST]))
        wanted = tuple(token_ids) if group else ()
        for ids, value in (group or {}).items():
            yield ids, value, common_start(ids, wanted)

    def longest(
        self, token_ids: Sequence[int], fits: Callable[[int, int], bool] = lambda length, count: True
    ) -> tuple[_Key, T, int] | None:
        """The entry that has most in common with these ids, of several the shortest; `fits` sees its length and how
        many tokens it has in common."""
        found = (each for each in self.common(token_ids) if fits(len(each[0]), each[2]))
        return max(found, key=lambda each: (each[2], -len(each[0])), default=None)

    def contained(self, token_ids: Sequence[int]) -> Iterator[tuple[_Key, T]]:
        """Every entry whose ids all stand at the start of these."""
        wanted = tuple(token_ids)
        for ids, value in self._groups.get(wanted[:SHORTEST], {}).items():
            if ids == wanted[: len(ids)]:
                yield ids, value
