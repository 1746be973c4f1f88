"""Kept states are seen: in the snapshot and its JSON, as nodes of `%yaie tree`, and beside the blocks."""

from __future__ import annotations

import random
import re
import threading
from dataclasses import replace
from typing import Any

import pytest

from yaie_engine import EngineSnapshot, SamplingParams, view
from yaie_engine.plain_data import MalformedError
from yaie_engine.snapshot_check import DEEPEST
from yaie_engine.states.kept import KeptState
from yaie_engine.states.seen import views_of
from yaie_widgets import draw_block_table, draw_radix_tree
from yaie_widgets.state_nodes import with_states
from yaie_widgets.tree_view import TreeIndex, request_path

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


def brute_force(entries: list[KeptState]) -> set[tuple[str, tuple[int, ...], tuple[int, ...] | None]]:
    """Salt, tokens, and the tokens of the longest other state that these go on from."""
    found = set()
    for one in entries:
        above = [
            other.token_ids
            for other in entries
            if other is not one and other.salt == one.salt and one.token_ids[: len(other.token_ids)] == other.token_ids
        ]
        found.add((one.salt, one.token_ids, max(above, key=len, default=None)))
    return found


@pytest.mark.parametrize("seed", range(20))
def test_any_states_hang_where_they_belong(seed: int) -> None:
    draw, texts = random.Random(seed), set[tuple[str, tuple[int, ...]]]()
    for _ in range(60):
        texts.add((draw.choice(["", "a", "b"]), tuple(draw.choices((1, 2), k=draw.randint(1, 7)))))
    entries = [kept(*ids, salt=salt) for salt, ids in texts]
    found, whole = views_of(entries), list[tuple[int, ...]]()
    for place, one in enumerate(found):
        assert one.parent is None or one.parent < place
        whole.append((*(() if one.parent is None else whole[one.parent]), *one.token_ids))
        assert one.num_tokens == len(whole[-1])
    salts = {entry.label: entry.salt for entry in entries}
    seen = zip(found, whole, strict=True)
    above = [(salts[one.label], ids, None if one.parent is None else whole[one.parent]) for one, ids in seen]
    assert set(above) == brute_force(entries) and len(above) == len(entries)


class Counted(int):
    """A token that counts how often it is compared."""

    compared = 0
    __hash__ = int.__hash__

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return int(self) == other


def test_many_states_below_one_text_cost_little_more_than_sorting_them() -> None:
    """Each against each would be 100 times as much: at 2,000 tokens seconds."""
    head, count = 60, 200
    Counted.compared = 0
    entries = [kept(*(Counted(i) for i in range(head)), Counted(1000 + i)) for i in range(count)]
    assert len(views_of(entries)) == count and Counted.compared < 12 * count * head


def test_views_are_made_on_the_thread_that_asks_and_names_are_made_once(
    open_llm: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = list[str]()

    def noting(entries: Any) -> Any:
        threads.append(threading.current_thread().name)
        return views_of(entries)

    monkeypatch.setattr(view, "views_of", noting)
    llm = open_llm()
    ask(llm, PROMPT)
    assert llm.snapshot().states and threads == [threading.current_thread().name]
    llm.check()
    assert len(threads) == 1, "a check needs none"
    entry = kept(*range(20))
    assert entry.label is entry.label and entry.label != kept(*range(21)).label


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
        ({"token_ids": [], "num_tokens": len(PROMPT)}, "does not have as many tokens"),
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


def chain(document: dict[str, Any], length: int) -> None:
    """States that go on from each other by a token."""
    first = document["states"][0]
    document["states"] = [
        {**first, "parent": at - 1 if at else None, "num_tokens": at + 1, "token_ids": [7]} for at in range(length)
    ]


def test_states_in_a_chain_without_end_are_refused(open_llm: Open) -> None:
    llm = open_llm()
    ask(llm, PROMPT)
    document = llm.snapshot().to_dict()
    chain(document, DEEPEST)
    deep = EngineSnapshot.from_dict(document)
    record = replace(llm.history(1)[0], prompt_token_ids=(7,) * 50, output_token_ids=())
    assert len(request_path(TreeIndex(with_states(deep)[0]), deep, record)) == 51
    chain(document, DEEPEST + 1)
    with pytest.raises(MalformedError, match=f"more than {DEEPEST} states deep"):
        EngineSnapshot.from_dict(document)
