"""Prefixes by their tokens: found by the first of them, compared by all."""

from __future__ import annotations

import pytest

from yaie_engine.store.index import SHORTEST, PrefixIndex

HEAD = list(range(SHORTEST))


def index_of(*prompts: list[int]) -> PrefixIndex[int]:
    index: PrefixIndex[int] = PrefixIndex()
    for value, prompt in enumerate(prompts):
        index.put(prompt, value)
    return index


def test_what_is_put_is_found_and_dropped_by_exactly_its_ids() -> None:
    one, two, other = [*HEAD, 1], [*HEAD, 2], list(range(50, 50 + SHORTEST))
    index = index_of(one, two, other)
    assert len(index) == 3 and dict(index) == {tuple(one): 0, tuple(two): 1, tuple(other): 2}
    assert [index.get(ids) for ids in (one, two, other, HEAD, [*one, 1])] == [0, 1, 2, None, None]
    index.put(two, 7)
    index.drop(one)
    index.drop([*HEAD, 3])
    assert len(index) == 2 and index.get(one) is None and index.get(two) == 7
    index.drop(two)
    assert dict(index) == {tuple(other): 2} and index.longest(two) is None
    index.drop(other)
    assert len(index) == 0 and index._groups == {}, "of what is gone nothing stays"


def test_what_is_too_short_is_refused() -> None:
    assert SHORTEST == 16
    with pytest.raises(ValueError, match=f"{SHORTEST - 1} tokens, at least {SHORTEST}"):
        index_of(HEAD[:-1])
    assert index_of(HEAD).get(HEAD) == 0


def test_the_longest_common_start_wins_the_shortest_of_equals() -> None:
    short, long, longer = [*HEAD, 1, 2], [*HEAD, 1, 2, 3, 4], [*HEAD, 1, 2, 3, 4, 5]
    index = index_of(short, long, longer)
    assert index.longest([*HEAD, 1, 2, 3, 9]) == (tuple(long), 1, SHORTEST + 3)
    assert index.longest(longer) == (tuple(longer), 2, SHORTEST + 5)
    assert index.longest(HEAD) == (tuple(short), 0, SHORTEST)
    assert index.longest(HEAD[:-1]) is None and index.longest([9, *HEAD]) is None
    seen: list[tuple[int, int]] = []
    assert index.longest(longer, lambda length, count: bool(seen.append((length, count)))) is None
    assert sorted(seen) == [(SHORTEST + 2,) * 2, (SHORTEST + 4,) * 2, (SHORTEST + 5,) * 2]
    assert index.longest(longer, lambda length, count: count < SHORTEST + 5) == (tuple(long), 1, SHORTEST + 4)


def test_contained_are_those_that_stand_whole_at_the_start() -> None:
    index = index_of(HEAD, [*HEAD, 1], [*HEAD, 1, 2], [*HEAD, 2])
    assert dict(index.contained([*HEAD, 1, 5])) == {tuple(HEAD): 0, (*HEAD, 1): 1}
    assert list(index.contained(HEAD[1:])) == []


def test_sixteen_tokens_are_enough_and_what_is_dropped_leaves_nothing() -> None:
    index = PrefixIndex[int]()
    index.put(range(16), 1)
    assert index.get(range(16)) == 1
    index.drop(range(16))
    assert len(index) == 0 and not index._groups
