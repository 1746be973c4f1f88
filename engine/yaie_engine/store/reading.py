"""Records on their way from the disk to who waits for them, on threads of their own.

When it is the turn of a request whose prompt begins like a record, and there is room for it, the record is read; until
then the request waits in the scheduler's queue as without a store, and can be cancelled like any other. Whoever else
runs goes on. A disk that hangs holds up nobody for long: after READ_S seconds the prompt is computed, and until the
disk answers nobody waits for it.
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
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from yaie_engine.common_start import common_start
from yaie_engine.errors import EngineDeadError
from yaie_engine.graft import graft
from yaie_engine.openmp import release_workers
from yaie_engine.runner import ModelRunner
from yaie_engine.sequence import Sequence
from yaie_engine.turns import resume

from .capture import PIECE_BYTES, is_changed
from .index import SHORTEST
from .kv import PrefixKV, write_blocks
from .prefix_store import CLOSE_S, LOOK_S, Entry, PrefixStore

if TYPE_CHECKING:
    from yaie_engine.engine import LLMEngine

logger = logging.getLogger("yaie")
T = TypeVar("T")
READER, MOST_READERS = "yaie-prefix-reader", 4
READ_S, ROOM_S = 7.0, 2.0
"""How long a request waits for a record once its turn has come, and since it came for room for all of its prompt."""
ASK_S = 0.1


@dataclass(eq=False, slots=True)
class Reading:
    """A record that is read, or a look at the folder (no record), since a time, and who waits for it."""

    entry: Entry | None = None
    since: float = math.inf
    waiting: list[Awaited] = field(default_factory=list)

    def lasts(self, seconds: float) -> bool:
        """Whether it has taken so long already."""
        return self.since < time.monotonic() - seconds


@dataclass(eq=False, slots=True)
class Awaited:
    """A sequence that may find its tokens in the store; the engine had `known` of them when it came.

    `look`: the folder has changed before that, and somebody looks. `entry` was found when the store was `asked`.
    `reading` is what it waits for now, until `deadline`.
    """

    reader: RecordReader[Any]
    seq: Sequence
    token_ids: list[int]
    known: int
    look: Reading | None
    came: float = field(default_factory=time.monotonic)
    entry: Entry | None = None
    asked: float = -math.inf
    reading: Reading | None = None
    deadline: float = math.inf

    def wanted(self) -> bool:
        """As `Source` says."""
        self.entry = self.reader.worth(self)
        wanted = self.entry is not None or self.reader.looks_for(self)
        if not wanted:
            self.seq.restored = self.reader.restored(self)
        return wanted

    @property
    def patient(self) -> bool:
        """As `Source` says."""
        return time.monotonic() - self.came < ROOM_S

    def begin(self) -> None:
        """As `Source` says."""
        self.reader.read_for(self)


class RecordReader(ABC, Generic[T]):
    """Reads what waiting sequences need, a few records at a time, each of them once. No thread waits for room."""

    def __init__(self, store: PrefixStore[T], engine: LLMEngine) -> None:
        self._store, self._engine = store, engine
        self._queue: SimpleQueue[Reading | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._being_read: dict[str, Reading] = {}
        self._look: Reading | None = None
        self._watched: list[Awaited] = []
        self._stirred = threading.Condition()
        self._closed = False

    # ---- what is read, and where it goes

    @abstractmethod
    def known(self, token_ids: list[int]) -> int:
        """How many leading tokens the engine seems to have already. A guess is enough."""

    @abstractmethod
    def find(self, token_ids: list[int], known: int) -> Entry | None:
        """The record that is worth reading for a prompt. Reads nothing."""

    @abstractmethod
    def bring(self, token_ids: list[int], spent: list[object] | None = None) -> int:
        """Read what `find` says, if anything, and hand it over; how many tokens the engine has more.

        What was read goes to `spent`: to free it takes milliseconds, for which nobody need wait.

        Raises:
            EngineDeadError: the engine is closed or failed.
        """

    @abstractmethod
    def restored(self, awaited: Awaited) -> int:
        """How many tokens of a prompt the engine has from a record that were not there before. Engine thread."""

    @property
    def changed(self) -> bool:
        """Whether the model is not the one any more that the records are of."""
        return is_changed(self._engine)

    # ---- any thread

    def expect(self, seq: Sequence) -> None:
        """Let a sequence that is about to be queued look for a record when its turn comes. Reads nothing here."""
        ids = seq.token_ids[: seq.num_prompt_tokens]
        if len(ids) >= SHORTEST and not self._closed:
            if self._store.stale:
                self._begin_to_look()
            with self._stirred:  # not when a record is due: to start a thread takes milliseconds beside a busy one
                if not self._closed:
                    self._start(READER, self._serve_all)
                    self._start("yaie-prefix-watch", self._watch_all)
            seq.source = Awaited(self, seq, ids, self.known(ids), self._look)

    def _begin_to_look(self) -> None:
        with self._stirred:
            if self._look is not None:
                return
            self._look = look = Reading(since=time.monotonic())
            self._start("yaie-prefix-look", partial(self._look_again, look))

    def close(self) -> None:
        """Read nothing more, and wait for what is being read, for at most CLOSE_S seconds. Idempotent."""
        with self._stirred:
            self._closed = True
            threads = list(self._threads)
            self._stirred.notify()
        for _ in threads:
            self._queue.put(None)
        deadline = time.monotonic() + CLOSE_S
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    # ---- engine thread

    def worth(self, awaited: Awaited) -> Entry | None:
        """The record that a sequence had better wait for; none while a read takes so long that the disk may hang.

        What was found is not looked for again in each step that has no room for it.
        """
        with self._stirred:
            hangs = any(reading.lasts(READ_S) for reading in self._being_read.values())
        if hangs or self._closed or self.changed:
            return None
        if awaited.entry is not None and time.monotonic() - awaited.asked < ASK_S:
            return awaited.entry
        awaited.asked, known = time.monotonic(), self.known(awaited.token_ids)
        awaited.known = min(awaited.known, known)  # what the engine had may be gone by now
        return self.find(awaited.token_ids, known)

    def looks_for(self, awaited: Awaited) -> bool:
        """Whether there may be a record yet, since the folder is looked at; not for long."""
        look = awaited.look
        return look is not None and look is self._look and not look.lasts(LOOK_S) and not self.changed

    def read_for(self, awaited: Awaited) -> None:
        """Read a record or share it with who waits for it already; without one wait for the look at the folder."""
        entry, now = awaited.entry, time.monotonic()
        with self._stirred:
            reading = awaited.look if entry is None else self._being_read.get(entry.name)
            if reading is None and entry is not None:
                reading = self._being_read[entry.name] = Reading(entry)
                self._queue.put(reading)
                self._start(READER, self._serve_all, min(len(self._being_read), MOST_READERS))
            awaited.reading = reading
            awaited.deadline = min(awaited.deadline, now + READ_S) if entry else now + LOOK_S
            if reading is None or (entry is None and reading is not self._look):  # the look is over by now
                self._let_go(awaited, reading)
                return
            reading.waiting.append(awaited)
            self._watched.append(awaited)
            self._stirred.notify()

    def _start(self, name: str, work: Callable[[], None], most: int = 1) -> None:
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        if sum(thread.name == name for thread in self._threads) < most:
            self._threads.append(threading.Thread(target=work, name=name, daemon=True))
            self._threads[-1].start()

    def _go_on(self, awaited: Awaited, reading: Reading | None) -> None:
        """What the engine has of a record counts as restored, also for who waited while another brought it.

        Who waited for a look looks for a record now.
        """
        seq = awaited.seq
        if reading is None or awaited.reading is not reading:  # it went on before
            return
        looked, awaited.reading = reading is awaited.look, None
        if looked:
            awaited.look, awaited.deadline = None, math.inf
        elif seq.num_cached_tokens is None:
            seq.restored = self.restored(awaited)
        resume(self._engine.scheduler, seq, awaited if looked else None)

    # ---- the threads

    def _serve_all(self) -> None:
        while (reading := self._queue.get()) is not None:
            spent: list[object] = []
            if not self._closed:
                self._serve(reading, spent)
            self._end(reading)
            spent.clear()
            release_workers()

    def _serve(self, reading: Reading, spent: list[object]) -> None:
        entry = reading.entry
        with self._stirred:
            reading.since = time.monotonic()
            prompts = [each.token_ids for each in reading.waiting if each.seq.live]
        if entry is None or not prompts:
            return
        try:
            self.bring(max(prompts, key=lambda ids: common_start(ids, list(entry.token_ids))), spent)
        except EngineDeadError:
            logger.debug("prefix store: the engine ended while a record was read")
        except Exception:  # the thread must live, and the request is computed
            logger.exception("prefix store: a record could not be brought in")

    def _look_again(self, look: Reading) -> None:
        try:
            self._store.refresh()
        except Exception:
            logger.exception("prefix store: the folder could not be looked at")
        self._end(look)

    def _end(self, reading: Reading) -> None:
        with self._stirred:
            if reading.entry is None:
                self._look = None
            else:
                self._being_read.pop(reading.entry.name, None)
            for each in reading.waiting:
                self._let_go(each, reading)
            self._watched = [each for each in self._watched if each.reading is not reading]

    def _watch_all(self) -> None:
        """Who waits in vain goes on; all of them, once a read takes so long that the disk may hang."""
        with self._stirred:
            while not self._closed:
                now, ends = time.monotonic(), [each.since + READ_S for each in self._being_read.values()]
                hangs = min(ends, default=math.inf) <= now
                for each in self._watched:
                    if hangs or each.deadline <= now:
                        logger.debug("prefix store: a record was not read in time; the prompt is computed")
                        self._let_go(each, each.reading)
                self._watched = [each for each in self._watched if not hangs and each.deadline > now]
                first = min(
                    (*(each.deadline for each in self._watched), *(ends if self._watched else ())), default=now + 60
                )
                self._stirred.wait(min(60.0, first - now))

    def _let_go(self, awaited: Awaited, reading: Reading | None) -> None:
        self._engine.before_next(partial(self._go_on, awaited, reading))


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

    def bring(self, token_ids: list[int], spent: list[object] | None = None) -> int:
        """As above."""
        found = self._found(token_ids, self.known(token_ids))
        kv = None if found is None or self.changed else self._store.read(found[0])
        if found is None or kv is None:
            return 0
        if spent is not None:
            spent.append(kv)
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

    def restored(self, awaited: Awaited) -> int:
        """As above."""
        count = self._store.covers(awaited.token_ids, awaited.came)
        there = min(count, self._engine.scheduler.tree.find(awaited.token_ids)[1])
        return max(0, there - awaited.known)

    def _graft(self, token_ids: list[int], kv: PrefixKV) -> tuple[int, int]:
        """How many of the tokens the tree has now, and how many of them it did not have before."""
        engine = self._engine
        if not isinstance(engine.runner, ModelRunner) or not engine.runner.cache.layers:  # asleep, or closed by now
            return 0, 0
        if engine.runner.changed:
            return 0, 0
        cache, tree = engine.runner.cache, engine.scheduler.tree

        def write(blocks: list[int], start: int, stop: int) -> None:
            write_blocks(cache, blocks, kv, start, stop)

        more = graft(tree, token_ids, write, least=1)
        return tree.find(token_ids)[1], more
