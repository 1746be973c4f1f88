"""The run of another process, put together from answers: equal to the run itself, whatever is sent."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.engine.fakes import eventually
from tests.live.runs import QUESTIONS, Script, sized
from tests.live.test_source import merged
from yaie_engine import LLM
from yaie_widgets.live.mirror import Mirror
from yaie_widgets.live.schema import RecordingError
from yaie_widgets.live.source import EngineSource


def sent(value: Any) -> Any:
    """What arrives of it."""
    return json.loads(json.dumps(value))


def answer(source: EngineSource, mirror: Mirror | None = None) -> Any:
    """What the server says to a follower, or to a new one."""
    known = mirror.known if mirror else {"run": ""}
    return sent(source.news(known["run"], known.get("since", -1)))


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A source looks at its engine each time it is asked."""
    monkeypatch.setattr("yaie_widgets.live.source._TURN_S", 0)


@pytest.fixture(scope="module")
def busy() -> Iterator[LLM]:
    """An engine whose pool is too small for its prompts: blocks are evicted, requests preempted."""
    with LLM("tiny", num_blocks=24, max_num_batched_tokens=64, recorder_steps=100) as llm:
        Script(llm)
        work(llm, 0)
        yield llm


def work(llm: LLM, turn: int) -> None:
    """Requests of all kinds, all of which end."""
    questions = [QUESTIONS[(turn + place) % len(QUESTIONS)] for place in range(3)]
    cancelled = llm.submit(llm.tokenize(questions[0]), sized(30))
    llm.generate(questions, sized(5, n=1 + turn % 2, cache_salt="pepper" if turn == 1 else None), use_tqdm=False)
    cancelled.cancel()
    eventually(lambda: not llm.running())


def test_increments_lead_to_the_whole(busy: LLM) -> None:
    source = EngineSource(busy)
    mirror = Mirror(answer(source))
    seen, revision = mirror.recording(), mirror.revision
    increments = 0
    for turn in range(6):
        work(busy, turn)
        told = answer(source, mirror)
        increments += "delta" in told
        mirror.take(told)
        delta, revision_before, revision = mirror.since(revision), revision, mirror.revision
        assert revision > revision_before
        seen = mirror.recording() if delta is None else merged(seen, delta)
        assert mirror.recording() == sent(source.recording()) == seen
    assert increments == 6 or mirror.step > 100
    counters = busy.snapshot().counters
    assert counters.evictions and busy.history()[-1].request_id in mirror.recording()["requests"]
    before = mirror.revision
    mirror.take(answer(source, mirror))
    assert mirror.revision == before  # nothing new


def test_a_follower_that_was_away_too_long_gets_the_whole(busy: LLM) -> None:
    source = EngineSource(busy)
    mirror = Mirror(answer(source))
    while busy.step < mirror.step + 120:  # the recorder has 100
        work(busy, 0)
    told = answer(source, mirror)
    assert "recording" in told
    mirror.take(told)
    assert mirror.recording() == sent(source.recording()) and mirror.since(1) is None


def test_what_is_kept_is_bounded(busy: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("source", "mirror"):
        monkeypatch.setattr(f"yaie_widgets.live.{module}.MAX_STEPS", 10)
    source = EngineSource(busy)
    mirror = Mirror(answer(source))
    for turn in range(3):
        work(busy, turn)
        mirror.take(answer(source, mirror))
        assert mirror.recording() == sent(source.recording()) and len(mirror.recording()["steps"]) <= 10
    assert len(mirror.recording()["steps"]) == 10
    monkeypatch.setattr("yaie_widgets.live.mirror.RENEW_BYTES", 100)
    work(busy, 0)
    mirror.take(answer(source, mirror))  # too much came since the whole
    assert not mirror.follows and "since" not in mirror.known
    mirror.take(answer(source, mirror))
    assert mirror.follows and mirror.recording() == sent(source.recording())


def test_another_pool_is_another_whole(busy: LLM) -> None:
    source = EngineSource(busy)
    mirror = Mirror(answer(source))
    work(busy, 0)
    told = answer(source, mirror)
    told["delta"]["engine"]["num_blocks"] = 7
    before = mirror.recording()
    mirror.take(told)
    assert not mirror.follows and mirror.recording() == before


def test_a_server_that_falls_silent_and_comes_back(busy: LLM) -> None:
    source = EngineSource(busy)
    mirror = Mirror(answer(source))
    known, revision = mirror.recording(), mirror.revision
    mirror.fall_silent("unreachable")
    assert not mirror.alive and mirror.memory is None
    assert mirror.since(revision) == {"steps": [], "requests": {}, "vocab": {}, "engine": {"state": "unreachable"}}
    assert mirror.recording()["steps"] == known["steps"]
    revision = mirror.revision
    mirror.fall_silent("unreachable")
    assert mirror.revision == revision
    mirror.take(answer(source, mirror))
    assert mirror.alive and mirror.memory and mirror.recording() == known
    assert (mirror.since(revision) or {})["engine"] == {"state": "ready"}


def test_a_server_that_was_restarted_is_another_run(busy: LLM) -> None:
    mirror = Mirror(answer(EngineSource(busy)))
    known = mirror.recording()
    mirror.take(answer(EngineSource(busy), mirror))
    assert mirror.restarted and not mirror.alive
    assert mirror.recording() == {**known, "engine": {**known["engine"], "state": "restarted"}}


def put(*path: Any, to: Any) -> Callable[[Any], None]:
    """Replaces one value."""

    def apply(value: Any) -> None:
        for part in path[:-1]:
            value = value[part]
        value[path[-1]] = to

    return apply


def add_step(**changes: Any) -> Callable[[Any], None]:
    """One more step at the end."""

    def apply(value: Any) -> None:
        steps = (value.get("delta") or value["recording"])["steps"]
        steps.append({**copy.deepcopy(steps[-1]), "step": steps[-1]["step"] + 1, **changes})

    return apply


HOSTILE: list[Callable[[Any], None]] = [
    put("run", to=7),
    put("run", to="x" * 3000),
    put("revision", to=-1),
    put("revision", to="3"),
    put("memory", to=-5),
    put("more", to=1),
    lambda told: told.update({"recording": {}, "delta": {}}),
    lambda told: [told.pop(name, None) for name in ("recording", "delta")],
    lambda told: told.update({"delta" if "delta" in told else "recording": []}),
    add_step(step=-3),
    add_step(step=10**30),
    add_step(batch=[["req", "train", 1]]),
    add_step(batch=[["r" * 2001, "decode", 1]]),
    add_step(allocated=[24]),
    add_step(ms=[1, 2, 3, float("nan")]),
    add_step(ms=[1, 2, 3, float("inf")]),
    add_step(tables=[["req-x", 5, [], 0]]),
    add_step(nodes=[[9999, 9999, "", 0, 0, [1], 0, [1], 1]]),
    add_step(nodes=[[9999, 0, "", 0, 4, [], 0, [], 1]]),
    add_step(html="<script>"),
]


@pytest.fixture(scope="module")
def said(busy: LLM) -> tuple[str, str, str]:
    """Three answers as they are sent: the whole, what came after, and the whole after that."""
    source = EngineSource(busy)
    whole = source.news("", -1)
    work(busy, 0)
    source.pull()
    return json.dumps(whole), json.dumps(source.news(source.run, whole["revision"])), json.dumps(source.news("", -1))


@pytest.mark.parametrize("place", range(len(HOSTILE)))
def test_what_does_not_follow_is_refused_and_the_rest_stays(said: tuple[str, str, str], place: int) -> None:
    whole, delta, after = map(json.loads, said)
    mirror = Mirror(json.loads(said[0]))
    for told, take in ((whole, Mirror), (delta, mirror.take)):
        HOSTILE[place](told)
        with pytest.raises(RecordingError) as refused:
            take(told)
        assert len(str(refused.value)) < 300 and "\n" not in str(refused.value)
    assert mirror.recording() == json.loads(said[0])["recording"] and not mirror.follows
    mirror.take(after)
    assert mirror.recording() == json.loads(said[2])["recording"]


@pytest.mark.parametrize("told", [None, [], {}, 3, "text", {"run": "x", "revision": 1, "memory": 1, "delta": {}}])
def test_what_is_no_answer_at_all(told: Any) -> None:
    with pytest.raises(RecordingError):
        Mirror(told)


def test_too_many_steps_and_requests_are_refused(busy: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    source = EngineSource(busy)
    mirror = Mirror(answer(source))
    work(busy, 0)
    told = answer(source, mirror)
    step = told["delta"]["steps"][-1]
    many = {**told["delta"], "steps": [{**step, "step": 10**6 + i} for i in range(4097)]}
    with pytest.raises(RecordingError, match="at most 4096"):
        mirror.take({**told, "delta": many})
    mirror.take(answer(source, mirror))
    known = mirror.recording()["requests"]
    monkeypatch.setattr("yaie_widgets.live.mirror.MAX_REQUESTS", len(known) + 400)
    facts = next(iter(known.values()))
    for part in range(2):  # each is small enough
        requests = {f"new-{part}-{i}": facts for i in range(300)}
        delta = {"steps": [], "vocab": {}, "engine": {}, "requests": requests}
        told = {"run": mirror.run, "revision": 10**6, "memory": 1, "delta": delta}
        if part:
            with pytest.raises(RecordingError, match="which no engine remembers"):
                mirror.take(told)
            assert not mirror.follows
        else:
            mirror.take(told)


def test_a_new_request_of_which_not_all_is_told_asks_for_the_whole(busy: LLM) -> None:
    source = EngineSource(busy)
    mirror = Mirror(answer(source))
    before = mirror.recording()
    delta = {"steps": [], "vocab": {}, "engine": {}, "requests": {"new": {"state": "decode"}}}
    mirror.take({"run": mirror.run, "revision": 10**6, "memory": 1, "delta": delta})
    assert not mirror.follows and mirror.recording() == before
