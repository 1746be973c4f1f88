"""The token inspector's widget without a browser: what pages may ask for, and what they are sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import comm
import pytest

from tests.engine.fakes import eventually
from tests.live.answers import INTRODUCTION, QUESTION, complete, settled
from tests.live.comms import FakeComm
from yaie_engine import LLM
from yaie_magic.inspector import Inspector
from yaie_widgets import TokenInspector


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM("tiny", num_blocks=128) as found:
        yield found


@pytest.fixture
def opened(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], tuple[Inspector, TokenInspector, Any]]]:
    """Inspectors of a story, their views and the comms behind them."""
    monkeypatch.setattr(comm, "create_comm", lambda **given: FakeComm(**given))
    views: list[TokenInspector] = []

    def make() -> tuple[Inspector, TokenInspector, Any]:
        story = complete(llm, INTRODUCTION + QUESTION, max_tokens=40, temperature=0, logprobs=3, ignore_eos=True)
        inspector = story.inspect()
        views.append(inspector.view)
        return inspector, inspector.view, inspector.view.comm

    yield make
    for view in views:
        view.close()


def put_together(messages: list[dict[str, Any]], answers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The answers of a page after these messages, as its reducer makes them."""
    for message in messages:
        for each in message.get("messages", [message]):
            if each["kind"] == "whole":
                answers = list(each["answers"])
            elif each["kind"] == "answer":
                answers[each["number"] :] = [each["answer"]]
            elif each["kind"] == "grown":
                before = answers[each["number"]]
                assert each["from"] == len(before["output"]), "no piece is missing or told twice"
                answers[each["number"]] = {
                    **before,
                    "output": before["output"] + each["output"],
                    "rows": before["rows"] + each["rows"],
                    "vocab": {**before["vocab"], **each["vocab"]},
                    **{name: each[name] for name in ("cached", "counts", "stats", "least")},
                }
    return answers


def test_a_page_that_asks_for_a_branch_gets_it_piece_by_piece(opened: Any) -> None:
    inspector, view, comm = opened()
    comm.say(kind="ready", seq=0, page="p")
    row = inspector.answers[0].rows[4]
    other = next(each.token_id for each in row.candidates if each.token_id != inspector.answers[0].output[4])
    comm.say(kind="branch", answer=0, position=4, token=other, page="p")
    eventually(lambda: len(inspector.answers) == 2)
    settled(inspector, 1)
    final = inspector.answers[1].to_dict()
    eventually(lambda: put_together(comm.each(), [comm.opened["snapshot"]["answers"][0]])[-1] == final)
    assert view.branches == inspector.branches and len(view.branches) == 1


def test_a_page_that_comes_later_gets_the_whole(opened: Any) -> None:
    inspector, view, _ = opened()
    row = inspector.answers[0].rows[4]
    other = next(each.token_id for each in row.candidates if each.token_id != inspector.answers[0].output[4])
    inspector.branch(4, other).wait(60)
    settled(inspector, 1)
    state = view.get_state("snapshot")["snapshot"]
    assert state["kind"] == "whole" and [each["name"] for each in state["answers"]] == [
        answer.name for answer in inspector.answers
    ]
    assert set(state["scales"]) == {"probability", "entropy"} and state["colour"] == "probability"


@pytest.mark.parametrize(
    "said",
    [
        {"kind": "branch"},
        {"kind": "branch", "answer": 0, "position": "4", "token": 5},
        {"kind": "branch", "answer": 0, "position": True, "token": 5},
        {"kind": "branch", "answer": [0], "position": 4, "token": None},
        {"kind": "stop", "answer": 0},
        {"kind": "stop", "answer": 7},
        {"kind": "stop", "answer": "1"},
        {"kind": "nonsense"},
    ],
)
def test_nonsense_of_a_page_is_ignored(opened: Any, said: dict[str, Any]) -> None:
    inspector, _, comm = opened()
    comm.say(**said, page="p")
    comm.say(kind="ready", seq=-1, page="p")
    eventually(lambda: "whole" in comm.kinds())
    assert len(inspector.answers) == 1 and "refused" not in comm.kinds()


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"answer": 0, "position": 40, "token": 5}, "Not branched: position=40: the output has tokens 0 to 39"),
        ({"answer": 3, "position": 4, "token": 5}, "Not branched: of=3: there are answers 0 to 0"),
        ({"answer": 0, "position": 4, "token": -1}, "Not branched: token_id=-1: token ids go from 0 to"),
    ],
)
def test_what_cannot_be_is_said(opened: Any, asked: dict[str, Any], words: str) -> None:
    _, _, comm = opened()
    comm.say(kind="ready", seq=0, page="p")
    comm.say(kind="branch", page="p", **asked)
    eventually(lambda: "refused" in comm.kinds())
    refused = next(message for message in comm.messages() if message["kind"] == "refused")
    assert refused["text"].startswith(words) and "\n" not in refused["text"]
