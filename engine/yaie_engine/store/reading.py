"""Records on their way from the disk to who waits for them, on threads of their own.

A request whose prompt begins like a record waits for it in the scheduler's queue, where it can be cancelled like any
other; whoever else runs goes on. A disk that hangs holds up who waits for that record, and not for ever: after READ_S
seconds the prompt is computed.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Generic, TypeVar

from yaie_engine.errors import EngineDeadError
from yaie_engine.graft import graft
from yaie_engine.openmp import release_workers
from yaie_engine.runner import ModelRunner
from yaie_engine.sequence import Sequence

from .capture import PIECE_BYTES
from .kv import PrefixKV, write_blocks
from .prefix_store import CLOSE_S, Entry, PrefixStore

if TYPE_CHECKING:
    from yaie_engine.engine import LLMEngine

logger = logging.getLogger("yaie")
T = TypeVar("T")
MOST_READERS = 4
READ_S = 10.0
"""How long a request waits for a record."""
LOOK_S = 0.02
"""How often a reader looks whether there is room by now."""


@dataclass(eq=False, slots=True)
class Awaited:
    """A sequence that waits for a record; the engine had `known` tokens of its prompt when it was queued.

    `done`: nobody reads for it any more.
    """

    seq: Sequence
    token_ids: list[int]
    known: int
    deadline: float
    done: threading.Event = field(default_factory=threading.Event)


@dataclass(eq=False, slots=True)
class Reading:
    """A record that is being read since a time, or waits for room, and who else waits for it."""

    since: float = math.inf
    others: list[Awaited] = field(default_factory=list)


class RecordReader(ABC, Generic[T]):
    """Reads what waiting sequences need, a few records at a time, each of them once. Any thread."""

    def __init__(self, store: PrefixStore[T], engine: LLMEngine) -> None:
        self._store, self._engine = store, engine
        self._queue: SimpleQueue[Awaited | None] = SimpleQueue()
        self._watched: SimpleQueue[Awaited | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._being_read: dict[str, Reading] = {}
        self._brought: dict[Sequence, int] = {}
        self._lock = threading.Lock()
        self._closed = False

    # ---- what is read, and where it goes

    @abstractmethod
    def known(self, token_ids: list[int]) -> int:
        """How many leading tokens the engine seems to have already. A guess is enough."""

    @abstractmethod
    def find(self, token_ids: list[int], known: int) -> Entry | None:
        """The record that is worth reading for a prompt. Reads nothing."""

    @abstractmethod
    def bring(self, token_ids: list[int]) -> int:
        """Read what `find` says, if anything, and hand it over; how many tokens the engine has more.

        Raises:
            EngineDeadError: the engine is closed or failed.
        """

    def room(self, awaited: Awaited) -> bool:
        """Whether what is read for a sequence now will still be there when it is admitted. A guess is enough."""
        return True

    @abstractmethod
    def restored(self, awaited: Awaited) -> int:
        """How many tokens of a prompt the engine has from a record that were not there before. Engine thread."""

    # ---- any thread

    def begin(self, seq: Sequence) -> None:
        """Let a sequence that is about to be queued wait for a record, where one is worth it. Reads nothing here."""
        ids = seq.token_ids[: seq.num_prompt_tokens]
        known = self.known(ids)
        entry = self.find(ids, known)
        if (entry is None and not self._store.stale) or self._hangs(entry):
            return
        seq.reading = True
        awaited = Awaited(seq, ids, known, time.monotonic() + READ_S)
        with self._lock:
            if not self._threads:
                self._start("yaie-prefix-watch", self._watch_all)
            if len(self._threads) <= MOST_READERS:
                self._start("yaie-prefix-reader", self._serve_all)
        self._queue.put(awaited)
        self._watched.put(awaited)

    def _hangs(self, entry: Entry | None) -> bool:
        """Whether there is no use in waiting: the disk does not give that record, or nobody is left to read."""
        limit = time.monotonic() - READ_S
        with self._lock:
            late = [name for name, reading in self._being_read.items() if reading.since < limit]
        return len(late) >= MOST_READERS or (entry is not None and entry.name in late)

    def _start(self, name: str, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def close(self) -> None:
        """Read nothing more, and wait for what is being read, for at most CLOSE_S seconds. Idempotent."""
        self._closed = True
        self._watched.put(None)
        with self._lock:
            threads = list(self._threads)
        for _ in threads:
            self._queue.put(None)
        deadline = time.monotonic() + CLOSE_S
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    # ---- the threads

    def _serve_all(self) -> None:
        while (awaited := self._queue.get()) is not None:
            if self._closed:
                awaited.done.set()
            elif not awaited.done.is_set():
                self._serve(awaited)
            release_workers()

    def _serve(self, awaited: Awaited) -> None:
        name = ""
        try:
            self._store.refresh()
            entry = self.find(awaited.token_ids, self.known(awaited.token_ids))
            if entry is not None:
                with self._lock:
                    if entry.name in self._being_read:
                        self._being_read[entry.name].others.append(awaited)
                        return
                    name = entry.name
                    self._being_read[name] = Reading()
                self._bring_in_time(awaited, self._being_read[name])
        except EngineDeadError:
            logger.debug("prefix store: the engine ended while a record was read")
        except Exception:  # the thread must live, and the request is computed
            logger.exception("prefix store: a record could not be brought in")
        with self._lock:
            reading = self._being_read.pop(name, None)
        for each in (awaited, *(reading.others if reading else ())):
            self._let_go(each)

    def _bring_in_time(self, awaited: Awaited, reading: Reading) -> None:
        """Read what a sequence needs once there is room for it: what comes before is gone when its turn comes.

        Who leaves, or has waited long enough, leaves it to the next.
        """
        while not self._closed:
            waiting = (each for each in (awaited, *reading.others) if each.seq.live and not each.done.is_set())
            if (first := next(waiting, None)) is None:
                return
            if self.room(first):
                reading.since = time.monotonic()
                self.bring(first.token_ids)
                return
            first.done.wait(LOOK_S)

    def _watch_all(self) -> None:
        """Who waits in vain goes on. They wait equally long, so that the first comes first."""
        while (awaited := self._watched.get()) is not None:
            if not awaited.done.wait(max(0.0, awaited.deadline - time.monotonic())):
                logger.debug("prefix store: a record was not read within %.0f s; the prompt is computed", READ_S)
                self._let_go(awaited)

    def _let_go(self, awaited: Awaited) -> None:
        awaited.done.set()
        self._engine.before_next(partial(self._go_on, awaited))

    # ---- engine thread

    def _go_on(self, awaited: Awaited) -> None:
        """What the engine has of a record counts as restored, also for who waited while another brought it."""
        seq = awaited.seq
        seq.reading = False
        if seq.num_cached_tokens is None:
            seq.restored = self.restored(awaited)


class BlockReader(RecordReader[PrefixKV]):
    """Records of KV, which join the tree between two steps, a piece at a time."""

    def known(self, token_ids: list[int]) -> int:
        """As above; without waiting for the engine thread, which may be changing the tree: where it is wrong, a record
        is read in vain or a prefix computed."""
        try:
            return self._engine.scheduler.tree.find(token_ids)[1]
        except (IndexError, KeyError, RuntimeError):
            return 0

    def find(self, token_ids: list[int], known: int) -> Entry | None:
        """As above."""
        found = self._found(token_ids, known)
        return None if found is None else found[0]

    def _found(self, token_ids: list[int], known: int) -> tuple[Entry, int] | None:
        return self._store.find(token_ids, known, self._engine.scheduler.pool.block_size)

    def bring(self, token_ids: list[int]) -> int:
        """As above."""
        found = self._found(token_ids, self.known(token_ids))
        kv = None if found is None else self._store.read(found[0])
        if found is None or kv is None:
            return 0
        ids, gained = token_ids[: found[1]], 0
        size = self._engine.scheduler.pool.block_size
        per_token = sum(tensor[:1].nbytes for pair in kv.values() for tensor in pair)
        step = max(1, PIECE_BYTES // (max(1, per_token) * size)) * size
        for stop in [*range(step, len(ids), step), len(ids)]:
            known, more = self._engine.call(partial(self._graft, ids[:stop], kv))
            gained += more
            if known < stop:  # there is no more room
                break
        return gained

    def room(self, awaited: Awaited) -> bool:
        """As above: blocks that were brought for others who are not admitted yet are not taken from them. Those of who
        runs come free, unless the policy takes them away from them."""
        scheduler = self._engine.scheduler
        pool, ids = scheduler.pool, awaited.token_ids
        need = pool.num_blocks(len(ids) + 1) - self.known(ids) // pool.block_size
        with self._lock:
            self._brought = {s: n for s, n in self._brought.items() if s.live and s.num_cached_tokens is None}
            taken = sum(self._brought.values())
            busy = taken or (scheduler.running and not scheduler.policy.displaces)
            if busy and need > pool.num_available - taken:
                return False
            self._brought[awaited.seq] = need
        return True

    def restored(self, awaited: Awaited) -> int:
        """As above."""
        count = self._store.covers(awaited.token_ids)
        there = min(count, self._engine.scheduler.tree.find(awaited.token_ids)[1])
        return max(0, there - awaited.known)

    def _graft(self, token_ids: list[int], kv: PrefixKV) -> tuple[int, int]:
        """How many of the tokens the tree has now, and how many of them it did not have before."""
        engine = self._engine
        if not isinstance(engine.runner, ModelRunner) or not engine.runner.cache.layers:  # asleep, or closed by now
            return 0, 0
        cache, tree = engine.runner.cache, engine.scheduler.tree

        def write(blocks: list[int], start: int, stop: int) -> None:
            write_blocks(cache, blocks, kv, start, stop)

        more = graft(tree, token_ids, write, least=1)
        return tree.find(token_ids)[1], more
