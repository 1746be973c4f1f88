"""The run of an engine in another process, kept up to date from what its server tells. Believes nothing unchecked."""

from __future__ import annotations

from typing import Any

from .known_run import KnownRun
from .recorded import change_of, frame_of
from .recording import MAX_ENTRIES, MAX_REQUESTS, MAX_STEPS, Json
from .recording_check import NUM_FACTS, RecordingCheck, anything
from .recording_cut import written
from .schema import RecordingError, fields, maybe, text, whole

RENEW_BYTES = 16 * 2**20
"""Bytes of increments after which the whole is asked for again: so what is kept is bounded, and checked anew."""
_SIZES = ("block_size", "num_blocks")


class Mirror(KnownRun):
    """Made from the first answer of a server, which has the whole; `take` goes on with the next ones. Any thread.

    `known` is where the next answer has to begin. When the server falls silent, what is known stays.
    """

    def __init__(self, answer: Any) -> None:
        """
        Raises:
            RecordingError: the answer is none of our server.
        """
        _check_answer(answer)
        super().__init__(answer["run"])
        self.memory: int | None = None
        self._there = -1  # the server's revision; -1: the next answer has to be the whole
        self.take(answer)

    @property
    def revision(self) -> int:
        """What `turn` of a source gives."""
        return self._revision

    @property
    def follows(self) -> bool:
        """Whether an increment is enough next time."""
        return self._there >= 0

    @property
    def known(self) -> Json:
        """The query for the next answer."""
        return {"run": self.run, "since": self._there} if self.follows else {"run": self.run}

    @property
    def restarted(self) -> bool:
        """Whether the server has another engine by now: nothing comes any more."""
        return bool(self._engine["state"][1] == "restarted")

    def recording(self) -> Json:
        """Everything, as of the last answer."""
        with self._lock:
            return self._known()

    def take(self, answer: Any) -> None:
        """Go on with an answer. After one that is refused, or an interrupt, the next has to be the whole.

        Raises:
            RecordingError: the answer is none of our server, or does not follow from the one before.
        """
        whole_asked, self._there = self._there < 0, -1
        _check_answer(answer)
        if answer["run"] != self.run:
            self.fall_silent("restarted")
        elif "recording" in answer:
            self._take_whole(answer)
            self._there = answer["revision"]
        elif whole_asked:
            raise RecordingError("an increment came where the whole was asked for")
        elif self._take_delta(answer):
            self._there = answer["revision"]

    def fall_silent(self, state: str) -> None:
        """Nothing new comes: the engine is in this state until the next answer."""
        with self._lock:
            self.memory = None
            if self._engine["state"][1] != state:
                self._next_revision()
                self._set("state", state)

    def _take_whole(self, answer: Json) -> None:
        recording = answer["recording"]
        check, base = RecordingCheck(recording), frame_of(recording["base"])  # without the lock: it takes its time
        if recording["run"] != self.run:
            raise RecordingError("the recording is of another run than the answer says")
        self._check, self._taken = check, 0
        with self._lock:
            self.memory = answer["memory"]
            self._next_revision()
            self._begin(base)
            self._requests, self._vocab = {}, {}
            self._going.clear()
            self._fill(recording, recording["engine"])

    def _take_delta(self, answer: Json) -> bool:
        """False when only the whole will do now."""
        delta = answer["delta"]
        self._check.delta(delta)
        self._taken += len(written(delta))
        if self._taken > RENEW_BYTES or self._other_pool(delta["engine"]) or self._forgotten(delta["requests"]):
            return False
        with self._lock:
            self.memory = answer["memory"]
            silent = self._engine["state"][1] != self._told_state
            engine = {"state": self._told_state, **delta["engine"]} if silent else delta["engine"]
            if engine or any(delta[part] for part in ("steps", "requests", "vocab")):
                self._next_revision()
                self._fill(delta, engine)
        return True

    def _other_pool(self, engine: Json) -> bool:
        """Whether block ids mean other blocks from now on."""
        return any(name in engine and engine[name] != self._engine[name][1] for name in _SIZES)

    def _forgotten(self, requests: Json) -> bool:
        """Whether something changes in a request of which not everything is known here."""
        return any(label not in self._requests and len(facts) < NUM_FACTS for label, facts in requests.items())

    def _fill(self, part: Json, engine: Json) -> None:
        """What a whole and a delta have in common."""
        for name, value in engine.items():
            self._set(name, value)
        self._told_state = self._engine["state"][1]
        for token, word in part["vocab"].items():
            self._add_token(int(token), word)
        for step in part["steps"]:
            self._add_step(change_of(step), step)
        for label, facts in part["requests"].items():
            self._tell(label, facts)
        while len(self._steps) > MAX_STEPS or self._entries > MAX_ENTRIES:
            self._roll()
        if len(self._requests) > MAX_REQUESTS:
            raise RecordingError(f"there are more than {MAX_REQUESTS:,} requests, which no engine remembers")


def _check_answer(answer: Any) -> None:
    known = {"run": text, "revision": whole(0, 2**53), "memory": maybe(whole(0, 2**60))}
    both = {"recording": anything, "delta": anything}
    fields("", answer, known | both, both)
    if len(answer.keys() & both) != 1:
        raise RecordingError("the answer has not one of recording and delta")
