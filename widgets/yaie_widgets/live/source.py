"""Where a live view takes its recording from: an engine in this process, or a saved run."""

from __future__ import annotations

import math
import threading
import time
import uuid
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from yaie_engine.increment import facts_of
from yaie_engine.tape import Frame, TapeStep

from .ledger import Ledger
from .recording import (
    FORMAT,
    LIVE,
    MAX_ENTRIES,
    MAX_STEPS,
    VERSION,
    Json,
    facts_json,
    frame_json,
    step_json,
    token_json,
    tokens_of,
    words,
)
from .recording_cut import with_entries

if TYPE_CHECKING:
    from yaie_engine import LLM
    from yaie_engine.increment import Increment, RequestFacts
    from yaie_engine.record import RequestRecord

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


def source_of(llm: LLM) -> EngineSource:
    """The one source of an engine, shared by all its views."""
    with _MAKING:
        found = _SOURCES.get(llm)
        if found is None:
            found = _SOURCES[llm] = EngineSource(llm)
        return found


class EngineSource:
    """Follows an engine without keeping it alive. What was recorded stays when the engine is gone. Any thread.

    A recording has no more than `most_entries` entries in the batches of its steps: a page takes in the whole at once.
    """

    def __init__(self, llm: LLM, most_entries: float = MAX_ENTRIES) -> None:
        self._most_entries, self._entries = most_entries, 0
        self.left_out = 0
        """Steps that were too many for the recording, and are part of its base."""
        self.run = uuid.uuid4().hex
        self._llm: weakref.ref[LLM] = weakref.ref(llm)
        self._lock = threading.RLock()
        self._revision, self._complete_since = 0, 0
        self._base = Frame(-1)
        self._steps: deque[tuple[int, TapeStep, Json]] = deque()
        self._engine: dict[str, tuple[int, Any]] = {}
        self._requests: dict[str, Json] = {}
        self._going: set[str] = set()
        self._vocab: dict[int, str | list[int]] = {}
        self._facts_log = Ledger[tuple[str, str]](lambda fact: fact[0] in self._requests)
        self._vocab_log = Ledger[int](lambda token: True)
        self._pulled_at = -math.inf
        self._deltas: dict[int, Json | None] = {}  # those made since the last pull, by where they begin
        self._remembered: str | None = None
        self._max_num_seqs = llm.config.max_num_seqs
        self._budget = llm.max_num_batched_tokens
        self.pull()

    @property
    def name(self) -> str:
        return str(self._engine["name"][1])

    @property
    def alive(self) -> bool:
        return self._engine["state"][1] not in ("failed", "closed")

    @property
    def step(self) -> int:
        with self._lock:
            return self._steps[-1][1].step if self._steps else self._base.step

    @property
    def idle(self) -> bool:
        """Whether no request was alive when last pulled."""
        with self._lock:
            return not self._going

    def pull(self) -> int:
        llm = self._llm()
        with self._lock:
            self._revision += 1
            self._pulled_at = time.monotonic()
            self._deltas = {}
            if llm is None:
                self._set(self._engine, "state", "closed" if self.alive else self._engine["state"][1])
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
            return {
                "format": FORMAT,
                "version": VERSION,
                "run": self.run,
                "engine": {key: value for key, (_, value) in self._engine.items()},
                "base": frame_json(self._base),
                "steps": [step for _, _, step in self._steps],
                "requests": {label: dict(facts) for label, facts in self._requests.items()},
                "vocab": {str(token): text for token, text in self._vocab.items()},
            }

    def since(self, revision: int) -> Json | None:
        with self._lock:
            if revision not in self._deltas:
                self._deltas[revision] = self._since(revision)
            return self._deltas[revision]

    def _since(self, revision: int) -> Json | None:
        if revision < self._complete_since:
            return None
        steps: list[Json] = []
        for known, _, step in reversed(self._steps):
            if known <= revision:
                break
            steps.append(step)
        requests: dict[str, Json] = {}
        for label, name in self._facts_log.after(revision):
            requests.setdefault(label, {})[name] = self._requests[label][name]
        return {
            "steps": steps[::-1],
            "requests": requests,
            "vocab": {str(token): self._vocab[token] for token in self._vocab_log.after(revision)},
            "engine": {key: value for key, (known, value) in self._engine.items() if known > revision},
        }

    def _set(self, table: dict[Any, tuple[int, Any]], key: Any, value: Any) -> None:
        if key not in table or table[key][1] != value:
            table[key] = (self._revision, value)

    def _take_engine(self, found: Increment) -> None:
        model = found.model
        for key in ("name", "fingerprint", "dtype", "device", "tier", "attention_backend"):
            self._set(self._engine, key, words(getattr(model, key)))
        self._set(self._engine, "block_size", found.block_size)
        self._set(self._engine, "num_blocks", found.num_blocks)
        self._set(self._engine, "max_num_batched_tokens", self._budget)
        self._set(self._engine, "max_num_seqs", self._max_num_seqs)
        self._set(self._engine, "state", found.state)

    def _take_steps(self, llm: LLM, found: Increment) -> None:
        if found.base is not None:  # the first pull, or the ring has left us behind
            self._steps.clear()
            self._base, self._entries, self._complete_since = found.base, 0, self._revision
            self._learn(llm, {token for node in found.base.nodes.values() for token in node.token_ids})
        for record, change in zip(found.records, found.changes, strict=True):
            step = step_json(record, change)
            self._learn(llm, tokens_of(step))
            self._entries += len(step["batch"])
            self._steps.append((self._revision, change, step))  # last: an interrupt before it has the step told again
        while len(self._steps) > MAX_STEPS or self._entries > self._most_entries:
            self._roll()

    def _roll(self) -> None:
        """The oldest step becomes part of the base, and requests that ended in it are forgotten."""
        revision, change, step = self._steps.popleft()
        self.left_out += 1
        self._entries -= len(step["batch"])
        self._complete_since = max(self._complete_since, revision)
        self._base.apply(change)
        for label, state in change.left:
            if state != "waiting":
                self._requests.pop(label, None)
                self._going.discard(label)

    def _learn(self, llm: LLM, tokens: set[int]) -> None:
        for token in tokens - self._vocab.keys():
            self._vocab[token] = token_json(llm.tokenizer.token_bytes(token))
            self._vocab_log.note(self._revision, token)

    def _take_requests(self, llm: LLM, found: Increment, history: list[RequestRecord]) -> None:
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
            for label, state in change.left:  # one that nothing remembers any more
                if state != "waiting":
                    self._fill(label, "state", state, LIVE)

    def _fill(self, label: str, name: str, value: Any, instead: tuple[Any, ...]) -> None:
        """What the tape knows of a request, where nothing better is known."""
        facts = self._requests.get(label)
        if facts is not None and facts[name] in instead:
            self._tell(label, {name: value})

    def _note(self, llm: LLM, facts: RequestFacts) -> None:
        known = self._requests.get(facts.label)
        head = "" if facts.prompt is not None else known["text"] if known else _head(llm, facts.head_ids)
        found = facts_json(facts, head)
        if found["num_cached_tokens"] is None and known:
            found["num_cached_tokens"] = known["num_cached_tokens"]
        self._tell(facts.label, found)

    def _tell(self, label: str, facts: Json) -> None:
        """Keep what is new of a request, and when each of it became known."""
        known = self._requests.setdefault(label, {})
        for name, value in facts.items():
            if name not in known or known[name] != value:
                known[name] = value
                self._facts_log.note(self._revision, (label, name))
        if known["state"] in LIVE:
            self._going.add(label)
        else:
            self._going.discard(label)


def _head(llm: LLM, ids: tuple[int, ...]) -> str:
    return b"".join(llm.tokenizer.token_bytes(token) or b"" for token in ids).decode(errors="replace")


class FileSource:
    """A saved run, or as many of its newest steps as a page can take: nothing comes after it."""

    alive = False
    idle = True

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
