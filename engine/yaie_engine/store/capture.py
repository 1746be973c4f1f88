"""Prefixes on their way out of an engine's blocks, a piece at a time.

The first piece is copied right after the forward that completes a prefix, what is left between later steps, out of the
blocks that the tree has for it by then: a stream that runs never waits for more than one piece. Nothing is held
meanwhile, so that no request lacks a block for it; a prefix that makes room before all of it is copied is not kept.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING

import torch

from yaie_engine.batch import RunnerOutput
from yaie_engine.errors import EngineDeadError, StoreError
from yaie_engine.kv_cache import KVCache, KVLayout
from yaie_engine.plan import StepPlan
from yaie_engine.runner import ModelRunner

from .kv import KVCopy
from .prefix_store import CLOSE_S, PrefixStore, Wanted

if TYPE_CHECKING:
    from yaie_engine.engine import LLMEngine

    from .kv import PrefixKV

logger = logging.getLogger("yaie")
PIECE_BYTES = 8 * 2**20
"""So much is copied between two steps, in either direction: some milliseconds."""
MOST_CAPTURES = 4096


def is_changed(engine: LLMEngine | None) -> bool:
    """Whether parts of its model were replaced: what it computes is of another model than the records. Any thread."""
    return engine is not None and isinstance(engine.runner, ModelRunner) and engine.runner.changed


class MadeRoomError(StoreError):
    """The blocks of a prefix were needed for others before it was copied."""


@dataclass(eq=False, slots=True)
class Copying:
    """A prefix that is wanted, and what was copied of it."""

    wanted: Wanted
    copy: KVCopy

    def piece(self, block_size: int, num_bytes: int) -> int:
        """Where the next piece of so many bytes ends: a whole number of blocks, at least one."""
        count = max(1, num_bytes // (max(1, self.copy.bytes_per_token) * block_size)) * block_size
        return min(self.copy.num_tokens, self.copy.copied + count)


class BlockCapture:
    """Copies what a store wants out of the blocks of an engine. `look` is called after each forward, on its thread."""

    def __init__(self, store: PrefixStore[PrefixKV], layout: KVLayout, dtype: torch.dtype) -> None:
        self._store, self._layout, self._dtype = store, layout, dtype
        self._expected: dict[int, list[Wanted]] = {}
        self._lock = threading.Lock()
        self._engine: LLMEngine | None = None
        self._queue: SimpleQueue[Copying | threading.Event | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def serve(self, engine: LLMEngine) -> None:
        """Copy out of the blocks of this engine."""
        self._engine = engine

    def expect(self, token_ids: list[int], seq_id: int) -> None:
        """A sequence with these prompt tokens is about to be queued: it may compute what is wanted. Any thread."""
        found = self._store.due(token_ids)
        with self._lock:
            if found:
                self._expected[seq_id] = found
                while len(self._expected) > MOST_CAPTURES:
                    self._expected.pop(next(iter(self._expected)))

    def flush(self) -> None:
        """Wait until all that was begun is copied, for at most CLOSE_S seconds. Not on the engine thread."""
        if self._thread is not None:
            event = threading.Event()
            self._queue.put(event)
            event.wait(CLOSE_S)

    def close(self) -> None:
        """Copy nothing more. The engine has to be closed. Idempotent."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._queue.put(None)
            thread.join(CLOSE_S)

    # ---- engine thread

    def look(self, plan: StepPlan, cache: KVCache, output: RunnerOutput) -> None:
        """Begin to copy what this step, which has just run, completed, but nothing of who failed in it.

        Never fails a step.
        """
        if not self._expected or not any(entry.seq.seq_id in self._expected for entry in plan.batch):
            return
        failed, room = output.failed(plan), PIECE_BYTES
        changed = is_changed(self._engine)
        for entry in plan.batch:
            if changed or entry.seq.seq_id in failed:
                self._expected.pop(entry.seq.seq_id, None)
            for wanted in list(self._expected.get(entry.seq.seq_id, ())):
                if len(wanted.token_ids) <= entry.stop:
                    self._forget(entry.seq.seq_id, wanted)
                    room -= self._begin(wanted, entry.table, cache, room)

    def _forget(self, seq_id: int, wanted: Wanted) -> None:
        with self._lock:
            left = [other for other in self._expected.pop(seq_id, ()) if other is not wanted]
            if left:
                self._expected[seq_id] = left

    def _begin(self, wanted: Wanted, table: list[int], cache: KVCache, room: int) -> int:
        """Copy the first piece, of at most `room` bytes; how many they were."""
        if not self._store.take(wanted):
            return 0
        try:
            copying = Copying(wanted, KVCopy(len(wanted.token_ids), self._layout, self._dtype))
            if room > 0:
                copying.copy.take(cache, table, copying.piece(cache.block_size, room))
            self._go_on(copying)
        except Exception as error:
            logger.warning("prefix store: a prefix could not be copied: %r", error)
            self._store.give_up(wanted, StoreError(f"the prefix could not be copied: {error!r}"))
            return 0
        return copying.copy.copied * copying.copy.bytes_per_token

    def _go_on(self, copying: Copying) -> None:
        if copying.copy.done:
            self._store.keep(copying.wanted, copying.copy)
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._copy_all, name="yaie-prefix-capture", daemon=True)
            self._thread.start()
        self._queue.put(copying)

    def _next_piece(self, copying: Copying) -> bool:
        """Copy one more piece out of the tree's blocks; False: it has them no more."""
        engine, copy = self._engine, copying.copy
        if engine is None or not isinstance(engine.runner, ModelRunner) or not engine.runner.cache.layers:
            return False
        if is_changed(engine):
            raise StoreError("the prefix was not stored: parts of the model were replaced while it was copied")
        tree, size = engine.scheduler.tree, engine.runner.block_size
        node, known = tree.find(list(copying.wanted.token_ids))
        stop = min(copying.piece(size, PIECE_BYTES), known if known == copy.num_tokens else known // size * size)
        if node is None or stop <= copy.copied:
            return False
        copy.take(engine.runner.cache, tree.blocks_to(node), stop)
        return True

    # ---- the thread

    def _copy_all(self) -> None:
        while (item := self._queue.get()) is not None:
            if isinstance(item, threading.Event):
                item.set()
                continue
            try:
                self._copy(item)
            except Exception as error:  # the thread must live, and the engine may be closed or asleep
                level = logging.DEBUG if isinstance(error, StoreError | EngineDeadError) else logging.WARNING
                logger.log(level, "prefix store: a prefix could not be copied: %r", error)
                known = error if isinstance(error, StoreError) else None
                self._store.give_up(item.wanted, known or StoreError(f"the prefix could not be copied: {error!r}"))

    def _copy(self, item: Copying) -> None:
        while not item.copy.done:
            if self._engine is None or not self._engine.call(partial(self._next_piece, item)):
                raise MadeRoomError("the prefix was not stored: its blocks made room for others while it was copied")
        self._go_on(item)
