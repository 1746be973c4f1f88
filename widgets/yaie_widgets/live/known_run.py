"""What is known of a run, and since when: the part of a source that does not depend on where its engine is."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

from yaie_engine.tape import Frame, TapeStep

from .ledger import Ledger
from .recording import FORMAT, LIVE, VERSION, Json, frame_json

OVER = ("failed", "closed", "unreachable", "unreadable", "restarted", "disconnected")
"""States of an engine of which nothing new comes, perhaps for a while only."""


class KnownRun:
    """Steps, requests, tokens and facts of the engine, each with the revision at which it became known. Any thread."""

    def __init__(self, run: str) -> None:
        self.run = run
        self.left_out = 0
        """Steps that were too many for the recording, and are part of its base."""
        self._lock = threading.RLock()
        self._revision, self._complete_since = 0, 0
        self._entries = 0
        self._base = Frame(-1)
        self._steps: deque[tuple[int, TapeStep, Json]] = deque()
        self._engine: dict[str, tuple[int, Any]] = {}
        self._requests: dict[str, Json] = {}
        self._going: set[str] = set()
        self._vocab: dict[int, str | list[int]] = {}
        self._facts_log = Ledger[tuple[str, str]](lambda fact: fact[0] in self._requests)
        self._vocab_log = Ledger[int](lambda token: True)
        self._deltas: dict[int, Json | None] = {}  # those made at this revision, by where they begin

    @property
    def name(self) -> str:
        return str(self._engine["name"][1])

    @property
    def alive(self) -> bool:
        return self._engine["state"][1] not in OVER

    @property
    def step(self) -> int:
        with self._lock:
            return self._steps[-1][1].step if self._steps else self._base.step

    @property
    def idle(self) -> bool:
        """Whether no request was alive when last heard of."""
        with self._lock:
            return not self._going

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

    def _known(self) -> Json:
        """Everything as a recording."""
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

    def _next_revision(self) -> None:
        self._revision += 1
        self._deltas = {}

    def _set(self, key: str, value: Any) -> None:
        """A fact of the engine."""
        if key not in self._engine or self._engine[key][1] != value:
            self._engine[key] = (self._revision, value)

    def _begin(self, base: Frame) -> None:
        """The steps begin anew after this frame."""
        self._steps.clear()
        self._base, self._entries, self._complete_since = base, 0, self._revision

    def _add_step(self, change: TapeStep, step: Json) -> None:
        self._entries += len(step["batch"])
        self._steps.append((self._revision, change, step))

    def _roll(self) -> None:
        """The oldest step becomes part of the base, and requests that ended in it are forgotten."""
        revision, change, step = self._steps.popleft()
        self.left_out += 1
        self._entries -= len(step["batch"])
        self._complete_since = max(self._complete_since, revision)
        self._base.apply(change)
        for label in change.ended:
            self._requests.pop(label, None)
            self._going.discard(label)

    def _add_token(self, token: int, text: str | list[int]) -> None:
        self._vocab[token] = text
        self._vocab_log.note(self._revision, token)

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
