"""Where a live view takes its recording from: an engine in this process, or a saved run."""

from __future__ import annotations

import math
import threading
import time
import uuid
import weakref
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from yaie_engine.increment import facts_of

from .known_run import KnownRun
from .memory import process_memory
from .recording import LIVE, MAX_ENTRIES, MAX_STEPS, MODEL, Json, facts_json, step_json, token_json, tokens_of, words
from .recording_cut import with_entries

if TYPE_CHECKING:
    from yaie_engine.errors import YaieError
    from yaie_engine.increment import Increment, RequestFacts
    from yaie_engine.record import RequestRecord
    from yaie_engine.serving import Engine

_SOURCES: weakref.WeakKeyDictionary[Any, EngineSource] = weakref.WeakKeyDictionary()
_MAKING = threading.Lock()
_TURN_S = 0.18  # views of one source that publish within this time are told the same


class Source(Protocol):
    """What a view follows. Revisions grow with everything that becomes known; a view remembers the last it has seen."""

    @property
    def name(self) -> str: ...
    @property
    def alive(self) -> bool: ...
    @property
    def step(self) -> int: ...
    @property
    def idle(self) -> bool: ...
    @property
    def memory(self) -> int | None:
        """Bytes of main memory that the process of the engine takes; None where no engine runs."""

    @property
    def trouble(self) -> YaieError | None:
        """Why an engine of another process tells nothing new."""

    @property
    def left_out(self) -> int:
        """Steps that are known, and too many for the recording."""

    def pull(self) -> int:
        """Take in what happened; the revision that this leads to."""

    def turn(self) -> int:
        """The same once for all views that publish at about the same time. Called by the publisher."""

    def recording(self) -> Json:
        """Everything, as of now."""

    def since(self, revision: int) -> Json | None:
        """What became known after `revision`; None when that reaches back too far and only the whole will do.

        Views share what this gives: it is not to be changed.
        """


@runtime_checkable
class Sourced(Protocol):
    """An engine of another process, which brings its source along."""

    def source(self) -> Source:
        """The one source of the run that the engine is in, just pulled.

        Raises:
            YaieError: the engine shows nothing of itself, or does not answer.
        """


def source_of(llm: Engine) -> Source:
    """The one source of an engine, shared by all its views. It has been pulled where asking anew costs time.

    Raises:
        YaieError: the engine is of another process, and nothing is known of it.
    """
    return llm.source() if isinstance(llm, Sourced) else engine_source(llm)


def engine_source(llm: Engine) -> EngineSource:
    """`source_of` for an engine of this process."""
    with _MAKING:
        found = _SOURCES.get(llm)
        if found is None:
            found = _SOURCES[llm] = EngineSource(llm)
        return found


def whole_run(llm: Engine) -> tuple[Json, int]:
    """The recording for a file, and how many steps are known in all: of an engine of this process it has also the steps
    that are too many for a page; one of another process tells no more than a page takes."""
    source = source_of(llm) if isinstance(llm, Sourced) else EngineSource(llm, most_entries=math.inf)
    recording = source.recording()
    return recording, len(recording["steps"]) + source.left_out


class EngineSource(KnownRun):
    """Follows an engine without keeping it alive. What was recorded stays when the engine is gone. Any thread.

    A recording has no more than `most_entries` entries in the batches of its steps: a page takes in the whole at once.
    """

    trouble = None

    def __init__(self, llm: Engine, most_entries: float = MAX_ENTRIES) -> None:
        super().__init__(uuid.uuid4().hex)
        self._most_entries = most_entries
        self._llm: weakref.ref[Engine] = weakref.ref(llm)
        self._pulled_at = -math.inf
        self._remembered: str | None = None
        self._max_num_seqs = llm.config.max_num_seqs
        self._budget = llm.max_num_batched_tokens
        self.pull()

    @property
    def memory(self) -> int | None:
        return process_memory() if self.alive else None

    def pull(self) -> int:
        llm = self._llm()
        with self._lock:
            self._next_revision()
            self._pulled_at = time.monotonic()
            if llm is None:
                self._set("state", "closed" if self.alive else self._engine["state"][1])
                return self._revision
            found = llm.steps_since(self.step)
            history = llm.history()
            self._take_engine(found)
            self._take_steps(llm, found)
            self._take_requests(llm, found, history)
            return self._revision

    def turn(self) -> int:
        with self._lock:
            return self.pull() if time.monotonic() - self._pulled_at >= _TURN_S else self._revision

    def recording(self) -> Json:
        with self._lock:
            self.pull()
            return self._known()

    def news(self, run: str, revision: int) -> Json:
        """What a follower elsewhere, who knows this run up to this revision, is told: `delta`, or `recording` where
        only the whole will do; with the `run` and `revision` it is of, and the `memory` of this process."""
        with self._lock:
            now = self.turn()
            delta = self.since(revision) if run == self.run and revision <= now else None
            known = {"recording": self.recording()} if delta is None else {"delta": delta}
            return {"run": self.run, "revision": self._revision, "memory": self.memory, **known}

    def _take_engine(self, found: Increment) -> None:
        model = found.model
        for key in MODEL:
            self._set(key, words(getattr(model, key)))
        self._set("block_size", found.block_size)
        self._set("num_blocks", found.num_blocks)
        self._set("max_num_batched_tokens", self._budget)
        self._set("max_num_seqs", self._max_num_seqs)
        self._set("state", found.state)

    def _take_steps(self, llm: Engine, found: Increment) -> None:
        if found.base is not None:  # the first pull, or the ring has left us behind
            self._begin(found.base)
            self._learn(llm, {token for node in found.base.nodes.values() for token in node.token_ids})
        for record, change in zip(found.records, found.changes, strict=True):
            step = step_json(record, change)
            self._learn(llm, tokens_of(step))
            self._add_step(change, step)  # last: an interrupt before it has the step told again
        while len(self._steps) > MAX_STEPS or self._entries > self._most_entries:
            self._roll()

    def _learn(self, llm: Engine, tokens: set[int]) -> None:
        for token in tokens - self._vocab.keys():
            self._add_token(token, token_json(llm.tokenizer.token_bytes(token)))

    def _take_requests(self, llm: Engine, found: Increment, history: list[RequestRecord]) -> None:
        for facts in found.requests:
            self._note(llm, facts)
        for record in reversed(history):
            if record.request_id == self._remembered:
                break
            for facts in facts_of(record):
                self._note(llm, facts)
        self._remembered = history[-1].request_id if history else None
        for change in found.changes:
            for label, hit in change.admitted:
                self._fill(label, "num_cached_tokens", hit, (None,))
            for label, state in change.ended.items():  # one that nothing remembers any more
                self._fill(label, "state", state, LIVE)

    def _fill(self, label: str, name: str, value: Any, instead: tuple[Any, ...]) -> None:
        """What the tape knows of a request, where nothing better is known."""
        facts = self._requests.get(label)
        if facts is not None and facts[name] in instead:
            self._tell(label, {name: value})

    def _note(self, llm: Engine, facts: RequestFacts) -> None:
        known = self._requests.get(facts.label)
        head = "" if facts.prompt is not None else known["text"] if known else _head(llm, facts.head_ids)
        found = facts_json(facts, head)
        if found["num_cached_tokens"] is None and known:
            found["num_cached_tokens"] = known["num_cached_tokens"]
        self._tell(facts.label, found)


def _head(llm: Engine, ids: tuple[int, ...]) -> str:
    return b"".join(llm.tokenizer.token_bytes(token) or b"" for token in ids).decode(errors="replace")


class FileSource:
    """A saved run, or as many of its newest steps as a page can take: nothing comes after it."""

    alive = False
    idle = True
    memory = trouble = None

    def __init__(self, recording: Json) -> None:
        self._recording = with_entries(recording, MAX_ENTRIES)
        self.left_out = len(recording["steps"]) - len(self._recording["steps"])

    @property
    def name(self) -> str:
        return str(self._recording["engine"]["name"])

    @property
    def step(self) -> int:
        steps = self._recording["steps"]
        return int(steps[-1]["step"] if steps else self._recording["base"]["step"])

    def pull(self) -> int:
        return 0

    def turn(self) -> int:
        return 0

    def recording(self) -> Json:
        return self._recording

    def since(self, revision: int) -> Json | None:
        return {}
