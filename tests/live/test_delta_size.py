"""What views send while an engine works: only what changed, once for all views, packed, and never too much a second."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from statistics import median
from typing import Any

import pytest

from tests.engine.fakes import eventually
from tests.live.comms import FakeComm, unpacked
from tests.live.runs import QUESTIONS, Script, sized
from yaie_engine import LLM
from yaie_widgets import Replay
from yaie_widgets.live.ledger import Ledger
from yaie_widgets.live.packing import DELTA_BYTES
from yaie_widgets.live.publisher import publisher
from yaie_widgets.live.source import EngineSource, source_of
from yaie_widgets.live.view import BYTES_PER_S, LiveView


@pytest.fixture(scope="module")
def engine() -> Iterator[LLM]:
    with LLM("tiny", num_blocks=512, max_num_batched_tokens=512) as found:
        yield found


@pytest.fixture
def llm(engine: LLM, monkeypatch: pytest.MonkeyPatch) -> Iterator[LLM]:
    monkeypatch.setattr("comm.create_comm", FakeComm)
    yield engine
    for view in list(publisher._views):
        view.close()  # type: ignore[attr-defined]


def test_a_request_that_goes_on_sends_what_changed_of_it_and_its_text_once(llm: LLM) -> None:
    Script(llm, 0.01)
    source = EngineSource(llm)
    revision = source.pull()
    handles = [llm.submit(QUESTIONS[i % 8], sized(60)) for i in range(16)]
    told: dict[str, list[set[str]]] = {}
    while not all(handle.done for handle in handles):
        time.sleep(0.05)
        now = source.pull()
        for label, facts in (source.since(revision) or {})["requests"].items():
            told.setdefault(label, []).append(set(facts))
        revision = now
    assert len(told) == 16
    for turns in told.values():
        assert len(turns[0]) == 12 and sum("text" in names for names in turns) == 1
        assert {"num_output_tokens"} in turns


def test_views_of_one_source_share_each_delta(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    Script(llm, 0.01)
    views = [Replay(source_of(llm)) for _ in range(5)]
    for view in views:
        view.comm.say(kind="ready", seq=0, page="p")
    made: list[int] = []
    since = EngineSource._since

    def counted(self: EngineSource, revision: int) -> Any:
        made.append(revision)
        return since(self, revision)

    monkeypatch.setattr(EngineSource, "_since", counted)
    handle = llm.submit(QUESTIONS[0], sized(150))
    eventually(lambda: handle.done)
    sent = [len(view.comm.messages()) for view in views]
    assert min(sent) >= 4 and len(made) < 0.6 * sum(sent)


class Talker(LiveView):
    """Says what it is told to."""

    NAME = "tree"

    def whole(self) -> dict[str, Any]:
        return {"kind": "whole"}


def test_large_messages_travel_packed_and_small_ones_plain(llm: LLM) -> None:
    view = Talker()
    comm: FakeComm = view.comm
    comm.say(kind="ready", seq=0, page="p")
    large = [["req-1", "decode", 1]] * 2000
    view.post("large", batch=large)
    eventually(lambda: len(comm.messages()) == 1)
    view.post("small", batch=large[:3])
    eventually(lambda: len(comm.messages()) == 2)
    first, second = comm.messages()
    assert set(first) == {"kind", "packed", "seq"} and unpacked(first) == {"kind": "large", "batch": large}
    assert len(first["packed"]) < DELTA_BYTES and "packed" not in second


def test_views_that_have_much_to_say_speak_rarer(llm: LLM) -> None:
    views = [Talker() for _ in range(4)]
    begun = time.monotonic()
    while time.monotonic() - begun < 2:
        for view in views:
            view.post("noise", text=random.randbytes(20_000).hex())
        time.sleep(0.05)
    for view in views:
        sent, times = view.comm.messages(), view.comm.times()
        assert len(sent) >= 2
        for message, before, after in zip(sent, times, times[1:], strict=False):
            assert after - before > 0.9 * len(message["packed"]) * len(views) / BYTES_PER_S


def test_reading_what_changed_costs_what_changed() -> None:
    def seconds(known: int) -> float:
        ledger = Ledger[int](lambda key: True)
        for key in range(known):
            ledger.note(key, key)
        spent = []
        for _ in range(200):
            start = time.perf_counter()
            assert ledger.after(known - 6) == list(range(known - 5, known))
            spent.append(time.perf_counter() - start)
        return median(spent)

    assert seconds(400_000) < 4 * seconds(2_000)


def test_a_ledger_keeps_the_last_change_of_each_key_and_forgets_what_is_gone() -> None:
    gone: set[int] = set()
    ledger = Ledger[int](lambda key: key not in gone)
    for revision in range(10_000):
        ledger.note(revision, revision % 7)
    assert ledger.after(-1) and set(ledger.after(-1)) == set(range(7)) and len(ledger._keys) <= 64
    assert ledger.after(9_997) == [9_998 % 7, 9_999 % 7] and ledger.after(9_999) == []
    gone |= {9_999 % 7}
    assert ledger.after(9_997) == [9_998 % 7]
