"""Views without a browser: numbered messages, resend, hidden pages, rates, one thread, and what ends them."""

from __future__ import annotations

import base64
import gc
import gzip
import json
import threading
import time
import weakref
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from tests.engine.fakes import eventually
from tests.live.comms import FakeComm, Page, opened_views
from tests.live.conftest import Recordings
from tests.live.runs import QUESTIONS, Script, sized
from yaie_engine import LLM
from yaie_widgets import Replay
from yaie_widgets.live.bundle import MAX_BYTES
from yaie_widgets.live.publisher import publisher
from yaie_widgets.live.replay_twin import draw_replay
from yaie_widgets.live.source import FileSource, source_of
from yaie_widgets.live.twin import TwinKeeper
from yaie_widgets.live.view import LiveView

QUIET = 0.4


class Log(LiveView):
    """A growing list of words."""

    NAME = "tree"

    def __init__(self) -> None:
        self.words: list[int] = []
        self.heard: list[Any] = []
        super().__init__()

    def whole(self) -> dict[str, Any]:
        return {"kind": "whole", "words": list(self.words)}

    def on_message(self, kind: str, content: dict[str, Any]) -> None:
        self.heard.append((kind, content["value"]))

    def add(self, word: int) -> None:
        with self.lock:
            self.words.append(word)
            self.post("word", word=word)


opened = pytest.fixture(opened_views)


def publishers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "yaie-publisher"]


def test_messages_are_numbered_and_in_order(opened: Any) -> None:
    log = Log()
    comm = opened(log)
    for word in range(5):
        log.add(word)
        time.sleep(0.05)
    eventually(lambda: comm.kinds() == ["word"] * 5)
    assert [message["seq"] for message in comm.messages()] == [1, 2, 3, 4, 5]


def test_two_thousand_words_a_second_are_thirty_messages(opened: Any) -> None:
    log = Log()
    comm = opened(log)
    start = time.monotonic()
    for word in range(1000):
        log.add(word)
        time.sleep(0.0005)
    seconds = time.monotonic() - start
    eventually(lambda: len(comm.kinds()) == 1000)
    assert 2 <= len(comm.messages()) <= 30 * seconds + 2
    assert min(b - a for a, b in pairwise(comm.times())) > 0.8 / 30
    page = Page(comm)
    page.seq = 0
    for _, data in comm.sent:
        page.take(data)
    assert page.words == list(range(1000))


def test_a_page_that_missed_some_gets_the_whole_once(opened: Any) -> None:
    log = Log()
    comm = opened(log)
    log.add(1)
    eventually(lambda: len(comm.messages()) == 1)
    comm.say(kind="ready", seq=0, page="p")
    eventually(lambda: len(comm.messages()) == 2)
    assert comm.messages()[1] == {"kind": "whole", "words": [1], "seq": 2}
    comm.say(kind="ready", seq=2, page="p")
    time.sleep(QUIET)
    assert len(comm.messages()) == 2


def test_pages_that_lose_messages_end_with_the_same_words(opened: Any) -> None:
    log = Log()
    page = Page(opened(log), loses=lambda seq: seq in (1, 4, 5, 9) or seq % 7 == 0)
    writers = [threading.Thread(target=lambda k=k: [log.add(k * 1000 + i) for i in range(200)]) for k in range(3)]  # type: ignore[misc]
    for writer in writers:
        writer.start()
    for word in range(60):
        log.add(word)
        time.sleep(0.02)
        if word % 10 == 0:
            log.get_state()  # another page opens meanwhile
    for writer in writers:
        writer.join()
    page.loses = lambda seq: False
    log.add(-1)
    time.sleep(0.1)
    log.add(-2)
    eventually(lambda: page.words == log.words, 10)
    assert page.asked > 2 and len(log.words) == 662


def test_a_page_that_opens_late_has_everything_in_its_state(opened: Any) -> None:
    log = Log()
    comm = opened(log)
    with log.lock:
        log.add(1)
        log.add(2)
        state = log.get_state()["snapshot"]
    assert state == {"seq": 0, "kind": "whole", "words": [1, 2]}
    eventually(lambda: bool(comm.messages()))
    assert comm.messages() == [{"kind": "whole", "words": [1, 2], "seq": 1}]  # nothing is told twice


def test_until_a_page_is_heard_the_state_travels_once_a_second(opened: Any) -> None:
    log = Log()
    comm = opened(log)
    for word in range(70):
        log.add(word)
        time.sleep(0.03)
    updates = comm.times("update")
    assert 1 <= len(updates) <= 3 and all(b - a > 0.9 for a, b in pairwise(updates))
    last = [data for _, data in comm.sent if data["method"] == "update"][-1]["state"]["snapshot"]
    assert last["kind"] == "whole" and last["words"] == list(range(len(last["words"]))) and last["seq"] > 0
    comm.say(kind="ready", seq=0, page="p")
    before = len(comm.times("update"))
    for word in range(70, 110):
        log.add(word)
        time.sleep(0.03)
    assert len(comm.times("update")) == before


def test_hidden_views_get_nothing_and_catch_up(opened: Any) -> None:
    log = Log()
    comm = opened(log)
    comm.say(kind="ready", seq=0, page="p")
    comm.say(kind="visible", visible=False, page="p")
    log.add(1)
    log.add(2)
    time.sleep(QUIET)
    assert comm.messages() == []
    comm.say(kind="visible", visible=True, page="p")
    eventually(lambda: bool(comm.messages()))
    assert comm.messages() == [{"kind": "whole", "words": [1, 2], "seq": 1}]


def test_a_view_is_hidden_when_no_page_shows_it(opened: Any) -> None:
    log = Log()
    comm = opened(log)
    for page in ("one", "two"):
        comm.say(kind="visible", visible=True, page=page)
    comm.say(kind="visible", visible=False, page="one")
    log.add(1)
    eventually(lambda: comm.kinds() == ["word"])
    comm.say(kind="visible", visible=False, page="two")
    log.add(2)
    time.sleep(QUIET)
    assert comm.kinds() == ["word"]


def test_pages_may_say_anything(opened: Any, caplog: pytest.LogCaptureFixture) -> None:
    log = Log()
    comm = opened(log)
    for content in ({}, {"kind": 7}, {"kind": "ready", "seq": "x"}, {"kind": "visible"}, {"kind": "press"}):
        comm.say(**content)
    comm.handler({"content": {"data": {"method": "custom", "content": [1]}}, "buffers": []})
    comm.say(kind="press", value=3)
    assert log.heard == [("press", 3)]
    assert len(caplog.records) == 1 and "not understood" in caplog.text
    comm.say(kind="visible", visible=True)
    log.add(1)
    eventually(lambda: "word" in comm.kinds() or "whole" in comm.kinds())


def test_one_thread_serves_all_and_ends_with_the_last(opened: Any) -> None:
    logs = [Log() for _ in range(12)]
    comms = [opened(log) for log in logs]
    for word in range(20):
        for log in logs:
            log.add(word)
        time.sleep(0.01)
    eventually(lambda: all(len(comm.kinds()) == 20 for comm in comms))
    assert len(publishers()) == 1
    for log in logs:
        log.close()
    eventually(lambda: not publishers())
    late = Log()
    comm = opened(late)
    late.add(1)
    eventually(lambda: comm.kinds() == ["word"])


def test_a_view_that_fails_is_dropped_alone(opened: Any, caplog: pytest.LogCaptureFixture) -> None:
    bad, worse, good = Log(), Log(), Log()
    told = opened(bad), opened(worse)
    comm = opened(good)
    bad.coalesce = lambda messages: 1 / 0  # type: ignore[assignment,return-value]
    bad.add(1)
    eventually(lambda: "a live view stops" in caplog.text)
    worse.due = lambda: 1 / 0  # type: ignore[assignment,method-assign,return-value]
    worse.add(1)
    eventually(lambda: all(each.kinds()[-1:] == ["stopped"] for each in told))
    good.add(1)
    eventually(lambda: comm.kinds() == ["word"])
    assert {id(bad), id(worse)}.isdisjoint(map(id, publisher._views)) and good in publisher._views


def test_a_closed_view_sends_nothing(opened: Any) -> None:
    log = Log()
    comm = opened(log)
    log.close()
    log.add(1)
    time.sleep(QUIET)
    assert comm.closed and comm.messages() == []


def test_kernels_that_answer_on_the_busy_shell_are_told_not_to(opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeComm, "_reply_subshell_for", lambda self, data, default: "busy", raising=False)
    comm = opened(Log())
    assert comm._reply_subshell_for({}, "chosen by the page") == "chosen by the page"


# ---- views of an engine


@pytest.fixture
def llm() -> Iterator[LLM]:
    with LLM("tiny", num_blocks=64, max_num_batched_tokens=64) as found:
        yield found


def deltas(comm: FakeComm) -> list[dict[str, Any]]:
    return [message["delta"] for message in comm.each() if message["kind"] == "steps"]


def told_steps(comm: FakeComm) -> list[int]:
    """The steps that the page knows of: those of its first state and those of all deltas."""
    first = [step["step"] for step in comm.opened["snapshot"]["recording"]["steps"]]
    return first + [step["step"] for delta in deltas(comm) for step in delta["steps"]]


def test_a_view_follows_its_engine_five_times_a_second(opened: Any, llm: LLM) -> None:
    Script(llm, 0.005)
    comm = opened(Replay(source_of(llm)))
    comm.say(kind="ready", seq=0, page="p")
    llm.generate(QUESTIONS[4], sized(150), use_tqdm=False)
    eventually(lambda: told_steps(comm) == [record.step for record in llm.snapshot().steps])
    assert len(told_steps(comm)) >= 150 and len(comm.messages()) >= 3
    times = comm.times()
    assert all(b - a > 0.09 for a, b in pairwise(times)) and len(times) <= 5 * (times[-1] - times[0]) + 2
    settled = len(comm.messages())
    time.sleep(3 * QUIET)
    assert len(comm.messages()) <= settled + 1  # how the request ended, then nothing


def test_views_of_one_engine_share_its_source_and_see_the_same(opened: Any, llm: LLM) -> None:
    Script(llm)
    comms = [opened(Replay(source_of(llm))) for _ in range(3)]
    llm.generate(QUESTIONS[:2], sized(9), use_tqdm=False)
    wanted = [record.step for record in llm.snapshot().steps]
    eventually(lambda: all(told_steps(comm) == wanted for comm in comms))
    assert len({comm.opened["snapshot"]["recording"]["run"] for comm in comms}) == 1
    assert len(publishers()) == 1


def test_a_hidden_view_of_an_engine_catches_up_with_what_it_missed(opened: Any, llm: LLM) -> None:
    Script(llm)
    comm = opened(Replay(source_of(llm)))
    comm.say(kind="visible", visible=False, page="p")
    llm.generate(QUESTIONS[0], sized(12), use_tqdm=False)
    time.sleep(2 * QUIET)
    assert comm.messages() == []
    comm.say(kind="visible", visible=True, page="p")
    eventually(lambda: told_steps(comm) == [record.step for record in llm.snapshot().steps])


def test_an_engine_that_is_unloaded_is_freed_and_its_view_says_so(opened: Any) -> None:
    llm = LLM("tiny", num_blocks=64)
    Script(llm)
    llm.generate(QUESTIONS[4], sized(3), use_tqdm=False)
    view = Replay(source_of(llm))
    comm = opened(view)
    engine, model = weakref.ref(llm), weakref.ref(llm._engine)
    llm.close()
    eventually(lambda: any(delta["engine"] == {"state": "closed"} for delta in deltas(comm)))
    del llm
    gc.collect()
    eventually(lambda: (gc.collect(), engine() is None and model() is None)[1])
    assert view.get_state()["snapshot"]["recording"]["steps"]


def test_an_engine_that_failed_is_told(opened: Any, llm: LLM) -> None:
    comm = opened(Replay(source_of(llm)))
    llm._engine.failure = RuntimeError("planted")
    llm._engine._inbox.put(lambda: 1 / 0)
    eventually(lambda: any(delta["engine"] == {"state": "failed"} for delta in deltas(comm)))


def test_an_engine_in_the_place_of_another_is_another_run(llm: LLM) -> None:
    with LLM("tiny", num_blocks=64) as other:
        assert source_of(llm).run != source_of(other).run
        assert source_of(llm).recording()["run"] == source_of(llm).run


def test_the_state_of_a_widget_is_small_and_has_no_address_or_secret(opened: Any, llm: LLM) -> None:
    view = Replay(source_of(llm))
    opened(view)
    state = view.get_state()
    assert len(state["_esm"].encode()) < MAX_BYTES
    assert repr(view) == "<Replay: tiny>"
    told = json.dumps({key: value for key, value in state.items() if key not in ("_esm", "_css")}, default=str)
    assert "token=" not in told and "0x" not in told
    assert set(state["snapshot"]["recording"]["engine"]) == {
        *("name", "fingerprint", "dtype", "device", "tier", "attention_backend", "block_size", "num_blocks"),
        *("max_num_batched_tokens", "max_num_seqs", "state"),
    }


def test_large_recordings_travel_packed(opened: Any, recording: Recordings) -> None:
    full = recording("full")
    view = Replay(FileSource(full))
    comm = opened(view)
    comm.say(kind="ready", seq=-1, page="p")
    eventually(lambda: bool(comm.messages()))
    for message in (view.get_state()["snapshot"], comm.messages()[0]):
        assert message["kind"] == "recording" and set(message) == {"kind", "seq", "packed"}
        assert len(message["packed"]) < 1_000_000 < len(json.dumps(full))
        assert json.loads(gzip.decompress(base64.b64decode(message["packed"])))["recording"] == full


# ---- the static twin


def test_a_hidden_view_keeps_its_twin_and_sends_nothing(opened: Any, llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("yaie_widgets.live.twin.REST_S", 0.1)
    Script(llm)
    source = source_of(llm)
    view = Replay(source)
    comm = opened(view)
    comm.say(kind="visible", visible=False, page="p")
    shown: list[Any] = []
    view.keep_twin(TwinKeeper(source.step, lambda: draw_replay(source.recording())._repr_mimebundle_(), shown.append))
    publisher.wake()
    llm.generate(QUESTIONS[0], sized(5), use_tqdm=False)
    eventually(lambda: bool(shown))
    assert comm.messages() == []
    assert shown[-1]["text/plain"] == draw_replay(source.recording()).text
    assert f"step {llm.step}" in shown[-1]["text/plain"]
