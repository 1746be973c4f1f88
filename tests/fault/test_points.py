"""Each fault point with each kind of error, under a real model: only the guilty fail, and nothing of it stays."""

from __future__ import annotations

import pytest

from tests.fault.faults import PAIRS, rounds
from yaie_engine.fault_points import POINTS, armed, fault_point


@pytest.mark.parametrize(
    ("count", "overlap"), [(len(PAIRS), False), pytest.param(len(PAIRS), True, marks=pytest.mark.full)]
)
def test_a_fault_anywhere_in_a_step_harms_only_who_was_in_it(count: int, overlap: bool) -> None:
    found = rounds(count, seed=count, overlap=overlap)
    print(found)
    assert not found.wrong
    assert sum(found.rounds.values()) == count
    assert set(found.rounds) == {"nobody", "one", "several", "engine"}


@pytest.mark.full
def test_many_faults_in_a_row() -> None:
    assert not rounds(1000, seed=7).wrong


def test_a_point_is_armed_by_its_name_and_only_for_a_while() -> None:
    seen: list[object] = []
    with armed("forward", lambda *context: seen.append(context)):
        fault_point("forward", 1, 2)
        fault_point("sample", 3)
        with pytest.raises(ValueError, match="'forward' is armed already"), armed("forward", seen.append):
            pass
    fault_point("forward", 4)
    assert seen == [(1, 2)]
    unknown = pytest.raises(
        ValueError, match=r"fault point 'foward': there is none of that name \(there are plan, start"
    )
    with unknown, armed("foward", seen.append):
        pass
    assert len(set(POINTS)) == len(POINTS)
