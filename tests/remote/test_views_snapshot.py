"""A snapshot that came from elsewhere: read back as it was sent, or refused with the place that is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.live.runs import QUESTIONS, Script, sized
from yaie_engine import LLM, EngineSnapshot, SamplingParams, YaieError
from yaie_engine.plain_data import MalformedError


@pytest.fixture(scope="module")
def busy() -> Iterator[EngineSnapshot]:
    """An engine in the middle of its work: several namespaces, choices, negative priorities, all kinds of records."""
    with LLM("tiny", num_blocks=64, max_num_batched_tokens=64) as llm:
        Script(llm, 0.001)
        llm.generate(list(QUESTIONS[:3]), sized(8, n=2), use_tqdm=False)
        llm.generate(QUESTIONS[0], sized(8, cache_salt="hunter2"), use_tqdm=False)
        handles = [llm.submit(question, sized(200, priority=-7)) for question in QUESTIONS[:3]]
        next(iter(handles[0]))
        yield llm.snapshot()
        for handle in handles:
            handle.cancel()


def sent(snapshot: EngineSnapshot) -> Any:
    return json.loads(json.dumps(snapshot.to_dict()))


def test_what_was_sent_is_read_back(busy: EngineSnapshot) -> None:
    assert busy.requests and busy.steps and len(busy.tree) > 4 and busy.counters.requests
    assert {request.priority for request in busy.requests} == {-7}
    assert EngineSnapshot.from_dict(sent(busy)) == busy


def test_a_closed_engine_is_read_back() -> None:
    llm = LLM("tiny", num_blocks=16)
    llm.generate("Hello", SamplingParams(max_tokens=2), use_tqdm=False)
    llm.close()
    last = llm.snapshot()
    assert last.blocks.total == 0 and last.steps
    assert EngineSnapshot.from_dict(sent(last)) == last


def change(*path: Any, to: Any) -> Callable[[Any], None]:
    """Replaces one value of a document."""

    def apply(document: Any) -> None:
        for part in path[:-1]:
            document = document[part]
        document[path[-1]] = to

    return apply


HOSTILE = {
    "version is 2": change("version", to=2),
    "step is True": change("step", to=True),
    "step is -1": change("step", to=-1),
    "step is 100000": change("step", to=10**400),
    "step is 1.0": change("step", to=1.0),
    "state is 'on'": change("state", to="on"),
    "model.name is None": change("model", "name", to=None),
    "model.name is '\\ud800'": change("model", "name", to="\ud800"),
    "model has an unknown key 'key'": change("model", "key", to="x"),
    "blocks are not free, held and cached": change("blocks", "free", to=0),
    "blocks has 99999999": change("blocks", "total", to=99999999),
    "requests[0].block_table holds block 64": change("requests", 0, "block_table", to=[64]),
    "requests[0].age_s is inf": change("requests", 0, "age_s", to=float("inf")),
    "requests[1].state is '[]'": change("requests", 1, "state", to="[]"),
    "requests is a dict": change("requests", to={}),
    "tree[1] is below node 777": change("tree", 1, "parent", to=777),
    "tree[2] has the id 0": change("tree", 2, "id", to=0),
    "tree[1] is a second root": change("tree", 1, "parent", to=None),
    "tree[0] does not have as many tokens": change("tree", 0, "num_tokens", to=5),
    "tree has no root": change("tree", to=[]),
    "tree[2] has no tokens": lambda document: document["tree"][2].update(
        parent=document["tree"][1]["id"], num_tokens=0, token_ids=[]
    ),
    "steps[0].step is 1000000000": change("steps", 0, "step", to=10**9),
    "steps[0].batch[0].kind is 'train'": change("steps", 0, "batch", 0, "kind", to="train"),
    "steps[0].blocks.copied[0] is a list: use a list of 2": change("steps", 0, "blocks", "copied", to=[[1, 2, 3]]),
    "counters.requests is a list": change("counters", "requests", to=[]),
    "has no 'ms'": lambda document: document["steps"][0].pop("ms"),
}


@pytest.mark.parametrize("problem", HOSTILE)
def test_what_is_no_snapshot_is_refused_in_one_line(busy: EngineSnapshot, problem: str) -> None:
    document = sent(busy)
    HOSTILE[problem](document)
    with pytest.raises(MalformedError) as refused:
        EngineSnapshot.from_dict(document)
    told = str(refused.value)
    assert problem in told and len(told) < 200 and "\n" not in told and isinstance(refused.value, YaieError)


def test_a_list_without_end_is_refused_before_it_is_read(busy: EngineSnapshot) -> None:
    document = sent(busy)
    document["steps"] = [document["steps"][0]] * (10**6 + 1)
    with pytest.raises(MalformedError, match="steps has 1,000,001 items"):
        EngineSnapshot.from_dict(document)
    document["steps"] = []
    document["tree"] = document["tree"][:1] + [
        {**document["tree"][1], "id": i, "parent": i - 1 if i > 1 else 0, "blocks": []} for i in range(1, 3000)
    ]
    with pytest.raises(MalformedError, match="more than 2000 nodes deep"):
        EngineSnapshot.from_dict(document)


@pytest.mark.parametrize("document", [None, [], {}, "x", 3, {"version": 1}])
def test_no_snapshot_at_all(document: Any) -> None:
    with pytest.raises(MalformedError):
        EngineSnapshot.from_dict(document)
