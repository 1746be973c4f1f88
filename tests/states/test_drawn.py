"""Kept states are seen: in the snapshot and its JSON, as nodes of `%yaie tree`, and beside the blocks."""

from __future__ import annotations

import re
from typing import Any

import pytest

from yaie_engine import EngineSnapshot, SamplingParams
from yaie_engine.plain_data import MalformedError
from yaie_engine.states.kept import KeptState
from yaie_engine.states.seen import views_of
from yaie_widgets import draw_block_table, draw_radix_tree

from .conftest import PROMPT, Open, ask

TAIL = [11, 12, 13] * 4


def kept(*token_ids: int, salt: str = "") -> KeptState:
    return KeptState(token_ids, salt, None, None, 2048)


def test_each_state_hangs_below_the_longest_that_it_goes_on_from() -> None:
    ids = tuple(range(20, 40))
    found = views_of(
        [kept(*ids, 1, 2), kept(*ids), kept(*ids, 1), kept(*ids, 3), kept(*ids, 1, 9, salt="mine"), kept(*ids[:18])]
    )
    assert [(one.num_tokens, one.token_ids[-2:], one.parent) for one in found if not one.namespace] == [
        (18, ids[16:18], None),
        (20, ids[18:], 0),
        (21, (1,), 1),
        (21, (3,), 1),
        (22, (2,), 2),
    ]
    salted = found[-1]
    assert salted.parent is None and salted.namespace.startswith("salt:") and "mine" not in salted.namespace


def test_an_engine_shows_what_it_keeps_and_how_often_it_served(open_llm: Open) -> None:
    llm = open_llm()
    assert "No state is kept yet." in draw_radix_tree(llm.snapshot()).text and "states" not in llm.snapshot().to_dict()
    ask(llm, PROMPT)
    ask(llm, [*PROMPT, *TAIL])
    ask(llm, PROMPT, SamplingParams(temperature=0, max_tokens=6, ignore_eos=True, cache_salt="another"))
    snapshot = llm.snapshot()
    entries = llm.prefixes.entries() if llm.prefixes is not None else []
    assert {state.label for state in snapshot.states} == {entry.label for entry in entries} and len(entries) > 4
    first = next(state for state in snapshot.states if state.num_tokens == len(PROMPT) and not state.namespace)
    assert first.token_ids == tuple(PROMPT) and first.text and first.hits == 1
    assert first.num_bytes == next(entry.num_bytes for entry in entries if entry.label == first.label)
    assert EngineSnapshot.from_dict(snapshot.to_dict()) == snapshot
    tree = draw_radix_tree(snapshot)
    assert f"{len(entries)} states, " in tree.text and "1 hit ·" in tree.text and "stands for 52 tokens" in tree.text
    assert len(re.findall(r" state ", tree.text)) == len(entries) and "namespace salt:" in tree.text
    assert tree.dot.count(">stands for ") and "a whole state" in tree.dot and "1 hit" in tree.dot
    drawn = sum(int(number) for number in re.findall(r"tokens=(\d+)", tree.dot))
    assert drawn == sum(len(state.token_ids) for state in snapshot.states)
    assert f"Kept beside the blocks: {len(entries)} states, " in draw_block_table(snapshot).text
    assert "Kept beside the blocks" in draw_block_table(snapshot).dot


def test_the_path_of_an_ended_request_runs_through_its_states(open_llm: Open) -> None:
    """Also where an earlier one begins with the same tokens: kept states are not split as nodes are."""
    llm = open_llm()
    for last in (3, 4):
        ask(llm, [*PROMPT, 7, 8, 9, last])
    record = llm.history(1)[0]
    text = draw_radix_tree(llm.snapshot(), request=record).text
    marked = [line for line in text.splitlines() if "─▶" in line]
    assert len(marked) >= 2 and all("state" in line for line in marked)
    assert f"stands for {len(PROMPT) + 4 + 5} tokens" in text


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"parent": 5}, "is below state 5, which is not before it"),
        ({"num_tokens": 3}, "does not have as many tokens"),
        ({"namespace": "salt:0"}, "of another namespace"),
        ({"hits": -1}, "hits"),
    ],
)
def test_states_that_contradict_themselves_are_refused(open_llm: Open, change: dict[str, Any], said: str) -> None:
    llm = open_llm()
    ask(llm, PROMPT)
    document = llm.snapshot().to_dict()
    assert document["states"][1]["parent"] == 0
    document["states"][1] |= change
    with pytest.raises(MalformedError, match=said):
        EngineSnapshot.from_dict(document)
