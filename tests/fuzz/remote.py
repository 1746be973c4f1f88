"""Targets for what a server far away may send: answers, lists of models, figures."""

from __future__ import annotations

import json
from typing import Any

from yaie_engine.errors import YaieError
from yaie_engine.outputs import RequestMetrics
from yaie_engine.plain_data import MalformedError
from yaie_engine.snapshot import EngineSnapshot
from yaie_magic.readings import read_metrics
from yaie_magic.remote.answer import Answer
from yaie_magic.remote.card import choose, read_cards
from yaie_magic.remote.events import EventReader
from yaie_magic.remote.faults import RemoteError
from yaie_widgets.state_nodes import with_states
from yaie_widgets.tree_view import TreeIndex, tree_view


def _json(text: str | bytes) -> Any:
    """A document as the client reads it; None for what is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def remote_answer(data: bytes) -> None:
    """A stream of chunks gives an output whose text is what the deltas join to, or a RemoteError."""
    answer = Answer(2)
    texts = ["", ""]
    try:
        for event in EventReader().push(data):
            chunk = _json(event)
            if isinstance(chunk, dict):
                for index, text in answer.take(chunk):
                    texts[index] += text
    except RemoteError:
        return
    answer.missing(True)
    found = answer.output("id", None, "stop", None, RequestMetrics())
    assert [choice.text for choice in found.outputs] == texts
    assert found.request_id.isprintable()


def model_cards(data: bytes) -> None:
    """Names of models can be printed."""
    try:
        cards = read_cards(_json(data), "http://127.0.0.1:1")
        choose(cards, None, "http://127.0.0.1:1")
    except YaieError:
        return
    assert all(card.name.isprintable() for card in cards)


def snapshot(data: bytes) -> None:
    """What passes is the same when sent on, and can be drawn, with the path of a request through all that it names."""
    try:
        found = EngineSnapshot.from_dict(_json(data))
    except MalformedError as error:
        assert "\n" not in str(error)
        return
    assert EngineSnapshot.from_dict(json.loads(json.dumps(found.to_dict(), allow_nan=False))) == found
    index = TreeIndex(with_states(found)[0])
    for part in (found.tree, found.states):
        index.path_of_tokens(tuple(token_id for each in part for token_id in each.token_ids))
    tree_view(found, depth=None, request=None, max_nodes=50)


def metrics(data: bytes) -> None:
    """Figures become plain data, or one error."""
    try:
        found = read_metrics(data.decode("utf-8", "replace"))
    except YaieError:
        return
    for reading in found:
        reading.to_dict()
