"""Records on their way from the disk into the engine's blocks, on a thread of their own.

A request whose prompt begins like a record waits for it in the scheduler's queue, where it can be cancelled like any
other; whoever else runs goes on. What was read and checked joins the tree between two steps, a slice at a time.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING

from yaie_engine.errors import EngineDeadError
from yaie_engine.graft import graft
from yaie_engine.openmp import release_workers
from yaie_engine.runner import ModelRunner
from yaie_engine.sequence import Sequence

from .kv import PrefixKV, write_blocks
from .prefix_store import CLOSE_S, PrefixStore

if TYPE_CHECKING:
    from yaie_engine.engine import LLMEngine

logger = logging.getLogger("yaie")
SLICE_BYTES = 8 * 2**20
"""So much is copied between two steps: some milliseconds."""


@dataclass(eq=False, slots=True)
class Awaited:
    """A sequence that waits for a record; the tree had `known` tokens of its prompt when it was queued."""

    seq: Sequence
    token_ids: list[int]
    known: int


class PrefixReader:
    """Reads what waiting sequences need, one after the other. Any thread."""

    def __init__(self, store: PrefixStore, engine: LLMEngine) -> None:
        self._store, self._engine = store, engine
        self._queue: SimpleQueue[Awaited | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def begin(self, seq: Sequence) -> None:
        """Let a sequence that is about to be queued wait for a record, where one is worth it. Reads nothing here."""
        ids = seq.token_ids[: seq.num_prompt_tokens]
        known = self._known(ids)
        if self._store.stale or self._store.find(ids, known, self._worth) is not None:
            seq.reading = True
            with self._lock:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._serve_all, name="yaie-prefix-reader", daemon=True)
                    self._thread.start()
            self._queue.put(Awaited(seq, ids, known))

    def bring(self, token_ids: list[int]) -> int:
        """Read the record that these tokens begin like, where that is worth it; how many tokens the tree has more.

        Raises:
            EngineDeadError: the engine is closed or failed.
        """
        found = self._store.find(token_ids, self._known(token_ids), self._worth)
        kv = None if found is None else self._store.read(found[0])
        if found is None or kv is None:
            return 0
        ids, gained = token_ids[: found[1]], 0
        size = self._engine.scheduler.pool.block_size
        per_token = sum(tensor[:1].nbytes for pair in kv.values() for tensor in pair)
        step = max(1, SLICE_BYTES // (max(1, per_token) * size)) * size
        for stop in [*range(step, len(ids), step), len(ids)]:
            known, more = self._engine.call(partial(self._graft, ids[:stop], kv))
            gained += more
            if known < stop:  # there is no more room
                break
        return gained

    def close(self) -> None:
        """Read nothing more, and wait for the thread, for at most CLOSE_S seconds. Idempotent."""
        self._queue.put(None)
        if self._thread is not None:
            self._thread.join(CLOSE_S)

    # ---- the thread

    def _serve_all(self) -> None:
        while (awaited := self._queue.get()) is not None:
            try:
                self._store.refresh()
                self.bring(awaited.token_ids)
            except EngineDeadError:
                logger.debug("prefix store: the engine ended while a record was read")
            except Exception:  # the thread must live, and the request is computed
                logger.exception("prefix store: a record could not be brought in")
            self._engine.before_next(partial(self._done, awaited))
            release_workers()

    # ---- engine thread

    def _done(self, awaited: Awaited) -> None:
        """What the tree has of a record counts as restored, also for who waited while another brought it."""
        seq = awaited.seq
        seq.reading = False
        count = self._store.covers(awaited.token_ids)
        there = min(count, self._engine.scheduler.tree.find(awaited.token_ids)[1])
        if seq.num_cached_tokens is None:
            seq.restored = max(0, there - awaited.known)

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

    # ---- any thread

    @property
    def _worth(self) -> int:
        return self._engine.scheduler.pool.block_size

    def _known(self, token_ids: list[int]) -> int:
        """How many leading tokens the tree seems to have. A guess without waiting for the engine thread, which may be
        changing the tree: where it is wrong, a record is read in vain or a prefix computed."""
        try:
            return self._engine.scheduler.tree.find(token_ids)[1]
        except (IndexError, KeyError, RuntimeError):
            return 0
