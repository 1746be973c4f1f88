"""Broken books as a client sees them: what runs is read to its end, all else hears why and what helps."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.fakes import Formula, eventually, swap_runner
from tests.engine.models import VOCAB
from tests.server.conftest import Serve
from tests.server.fakes import RawStream, counted, events, get, outcomes, send
from tests.server.test_failures import ROUTES
from yaie_magic.server.background import BackgroundServer

PROMPT, LENGTH = "abcdefg", 200
SLOW_S = 0.1


class Slow:
    """A server whose engine takes its time with each step until told to hurry, and finds broken books when told so."""

    def __init__(self, server: BackgroundServer) -> None:
        self.server, self.llm = server, server.llm
        self._hurry, self._broken = threading.Event(), threading.Event()
        formula, complete = Formula(VOCAB), self.llm._scheduler.complete
        swap_runner(self.llm, formula.runner)
        formula.runner.before = lambda _: self._hurry.wait(SLOW_S)

        def and_break(*given: Any) -> None:
            complete(*given)
            if self._broken.is_set():
                self._broken.clear()
                self.llm._scheduler.pool._held -= 100

        self.llm._scheduler.complete = and_break  # type: ignore[method-assign, assignment]

    def streams(self, number: int, path: str) -> list[RawStream]:
        """So many that run, in an engine that drains because its books broke."""
        found = [RawStream(self.server, path, body(stream=True)) for _ in range(number)]
        eventually(lambda: len(self.llm.running()) == number)
        self._broken.set()
        eventually(lambda: self.llm.state == "draining")
        return found

    def hurry(self) -> None:
        """No more waiting."""
        self._hurry.set()


@pytest.fixture
def slow(serve: Serve) -> Iterator[Slow]:
    made = Slow(serve({"max_num_seqs": 2}))
    yield made
    made.hurry()


def body(**fields: Any) -> dict[str, Any]:
    return {"prompt": PROMPT, "max_tokens": LENGTH, "ignore_eos": True, "temperature": 0, **fields}


def test_new_work_is_refused_and_what_runs_is_read_to_its_end(slow: Slow) -> None:
    server, llm = slow.server, slow.llm
    right = llm.detokenize(Formula(VOCAB).greedy(llm.tokenize(PROMPT), LENGTH))
    streams = slow.streams(3, "/v1/completions")
    for path, fields in ROUTES:
        answer = send(server, path, fields)
        error = answer.json()["error"]
        assert answer.status_code == 503 and error["code"] == "engine_draining", path
        assert "takes no new requests" in error["message"] and "%yaie restart" in error["message"]
        assert answer.headers["x-should-retry"] == "false", "the official client would ask twice more"
    refused = send(server, "/generate", {"prompt": "abc", "stream": True})
    assert refused.status_code == 503, "before the stream begins"
    health = get(server, "/health")
    found = health.json()
    assert health.status_code == 503 and found["status"] == "failed" and found["active_requests"] > 0
    assert "finishes what runs" in found["reason"] and "%yaie restart" in found["reason"]
    assert get(server, "/debug/snapshot").json()["state"] == "draining", "one may still look"
    slow.hurry()
    for stream in streams:
        *pieces, last = events(stream.read_to_end())
        assert last == "[DONE]" and "".join(piece["choices"][0]["text"] for piece in pieces) == right
    eventually(lambda: llm.state == "failed")
    ended = get(server, "/health")
    assert ended.status_code == 503 and ended.json()["active_requests"] == 0
    assert "does not serve any more" in ended.json()["reason"] and "%yaie restart" in ended.json()["reason"]
    last_error = send(server, "/v1/completions", {"prompt": "abc"}).json()["error"]
    assert last_error["code"] == "engine_dead" and "%yaie restart" in last_error["message"]
    counted(server, ok=3, error=6)
    assert "yaie:invariant_breaches_total 1.0" in get(server, "/metrics").text


def test_answers_tell_nothing_of_the_report(slow: Slow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it lies and what it says is for the log of the server's owner."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    server, (stream,) = slow.server, slow.streams(1, "/generate")
    said = get(server, "/health").text + send(server, "/generate", {"prompt": "abc"}).text
    assert [*tmp_path.glob("yaie-breach-*.json")] and "yaie-breach" not in said and str(tmp_path) not in said
    assert outcomes(server)["ok"] == 0
    slow.hurry()
    stream.read_to_end()
