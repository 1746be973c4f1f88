"""The store of one engine: which prefixes are on disk, which are to be kept, and the thread that writes them.

What a record holds is the business of who uses it: KV out of blocks (`capture`, `reading`), or whole states. Reading
happens on threads of its own, so that no step waits for a disk, and a thread of the store writes. The idea of KV that
outlives a request is that of SGLang's HiCache and of llama.cpp's saved slots; here a record is found by its tokens and
used by copy.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from queue import Empty, Full, Queue
from typing import Generic, Protocol, TypeVar

from yaie_engine.errors import StoreError
from yaie_engine.openmp import release_workers

from .folder import FileInfo, RecordFolder
from .index import SHORTEST, PrefixIndex
from .record import Body, DamagedRecordError, head_of

logger = logging.getLogger("yaie")
T = TypeVar("T")
MOST_WANTED, MOST_QUEUED = 256, 4
CLOSE_S = 5.0
"""How long closing waits for what is still to be written; the rest is dropped."""
LOOK_S = 1.0
"""How long somebody waits while another one looks what the folder has; then it goes on with what is known."""


@dataclass(eq=False, slots=True)
class Entry:
    """A record on disk that fits the model. `hits` counts uses by this engine, which `read` it last at a time of
    `time.monotonic`; other times are seconds since 1970."""

    token_ids: tuple[int, ...]
    name: str
    num_bytes: int
    created: float
    used: float
    hits: int = 0
    read: float = 0.0

    @property
    def label(self) -> str:
        """A short name for lists."""
        return self.name[17:25]

    @property
    def pinned(self) -> bool:
        return FileInfo(self.name, 0, 0.0).pinned


@dataclass(eq=False, slots=True)
class Wanted:
    """A prefix to be kept as soon as a request computes it, or has it. `saved` tells whoever asked for it."""

    token_ids: tuple[int, ...]
    pinned: bool = False
    saved: Future[Entry] | None = None
    taken: bool = False
    """Whether it was copied out for who asked: other requests that begin with it were queued meanwhile, too."""


class Content(Protocol):
    """What a record is to hold."""

    def is_sound(self) -> bool:
        """Whether every number is finite."""
        ...

    def body(self) -> Body:
        """It as safetensors."""
        ...


class PrefixStore(Generic[T]):
    """Records of one model in a folder that others may share. Any thread; no lock that a step needs is held while the
    disk works. `off` says why nothing is written, `blind` why the folder cannot be read; "" while that is not so.

    `unpack(body, num_tokens)` makes of a body whose checksum was right what is used; it raises DamagedRecordError.
    """

    def __init__(self, folder: RecordFolder, identity: str, unpack: Callable[[Body, int], T]) -> None:
        self.folder = folder
        self.off = self.blind = ""
        self._identity, self._unpack = identity, unpack
        self._lock, self._disk = threading.RLock(), threading.RLock()
        self._records: PrefixIndex[Entry] = PrefixIndex()
        self._wanted: PrefixIndex[Wanted] = PrefixIndex()
        self._pending: set[tuple[int, ...]] = set()
        self._queue: Queue[tuple[Wanted, Content] | None] = Queue(MOST_QUEUED)
        self._writer: threading.Thread | None = None
        self._seen, self._warned, self._closed = -1, False, False
        self.refresh()

    # ---- what is there

    def entries(self) -> list[Entry]:
        """The records of this model, most recently used first."""
        self.refresh()
        used = {file.name: file.used for file in self.folder.files()}
        with self._lock:
            found = [entry for _, entry in self._records]
        for entry in found:
            entry.used = used.get(entry.name, entry.used)
        return sorted(found, key=lambda entry: entry.used, reverse=True)

    def others(self) -> tuple[int, int]:
        """How many files of other models (or damaged ones) share the folder, and their bytes."""
        files = [file for file in self.folder.files() if not self._is_mine(file)]
        return len(files), sum(file.num_bytes for file in files)

    def pin(self, entry: Entry, pinned: bool) -> None:
        """Keep a record when room is needed, or not any more.

        Raises:
            StoreError: the file is gone, or the disk refuses.
        """
        with self._disk:
            try:
                entry.name = self.folder.pin(FileInfo(entry.name, entry.num_bytes, entry.used), pinned)
            except OSError as error:
                raise StoreError(f"the record cannot be renamed: {error.strerror}") from error

    def clear(self, entries: Iterable[Entry]) -> tuple[int, int]:
        """Remove these records from the disk; how many there were, and their bytes. The engine's blocks stay."""
        count = size = 0
        with self._disk:
            for entry in entries:
                if self.folder.remove(self.folder.names(entry.name)):  # another process may have pinned it
                    count, size = count + 1, size + entry.num_bytes
                with self._lock:
                    self._records.drop(entry.token_ids)
        return count, size

    def _is_mine(self, file: FileInfo) -> bool:
        return file.content.startswith(self._identity[:16] + "-")

    @property
    def stale(self) -> bool:
        """Whether the folder has changed since it was looked at."""
        return self.folder.changed != self._seen

    def refresh(self) -> None:
        """Look again where the folder has changed: other processes write and remove records, too."""
        if not self.stale or not self._disk.acquire(timeout=LOOK_S):
            return
        try:
            self._look()
        finally:
            self._disk.release()

    def _look(self) -> None:
        self._seen = self.folder.changed
        with self._lock:
            before = {entry.name for _, entry in self._records}
        try:
            mine = {file.name: file for file in self.folder.files() if self._is_mine(file)}
        except OSError as error:
            self.blind = error.strerror or repr(error)
            self._warn(f"the folder cannot be read: {error}")
            return
        self.blind = ""
        with self._lock:
            for ids, entry in list(self._records):
                if entry.name in before and entry.name not in mine:
                    self._records.drop(ids)
            known = {entry.name for _, entry in self._records}
        for name, file in mine.items():
            if name not in known:
                self._take_in(file)

    def _take_in(self, file: FileInfo) -> None:
        try:
            head = self.folder.head(file.name)
        except DamagedRecordError as error:
            self._set_aside(file.name, error)
            return
        except OSError:
            return  # another process removed it
        if head.identity != self._identity or len(head.token_ids) < SHORTEST:
            return
        entry = Entry(head.token_ids, file.name, file.num_bytes, head.created, file.used)
        with self._lock:
            before = self._records.get(head.token_ids)
            entry.hits = before.hits if before else 0
            self._records.put(head.token_ids, entry)

    # ---- reading

    def find(self, token_ids: list[int], known: int, worth: int) -> tuple[Entry, int] | None:
        """The record that has most in common with a prompt, and how many tokens that is. Reads nothing.

        Only one that has `worth` tokens more than are `known` to be cached, and a fair part of which is of use. Of
        several the shortest: a record is read whole, since its checksum is that of the whole.
        """

        def fits(length: int, count: int) -> bool:
            return count >= SHORTEST and 4 * count >= length and count - known >= min(worth, count)

        with self._lock:
            best = self._records.longest(token_ids, fits)
        return None if best is None else best[1:]

    def covers(self, token_ids: list[int], since: float) -> int:
        """How many of the first tokens some record has that was read since a time of `time.monotonic`."""
        with self._lock:
            return max((n for _, entry, n in self._records.common(token_ids) if entry.read >= since), default=0)

    def contained(self, token_ids: list[int]) -> list[Entry]:
        """The records all of whose tokens stand at the start of these."""
        with self._lock:
            return [entry for _, entry in self._records.contained(token_ids)]

    def read(self, entry: Entry) -> T | None:
        """What a record holds; None where it cannot be read, or is not as it was written: a miss."""
        try:
            head, body = self.folder.read(entry.name)
            if head.identity != self._identity or head.token_ids != entry.token_ids:
                raise DamagedRecordError("it is not the record that was listed")
            content = self._unpack(body, len(head.token_ids))
        except DamagedRecordError as error:
            self._set_aside(entry.name, error)
        except FileNotFoundError:
            logger.debug("prefix store: %s is gone", entry.name)
        except OSError as error:
            self._warn(f"{entry.name} cannot be read ({error.strerror})")
        else:
            entry.hits, entry.used, entry.read = entry.hits + 1, time.time(), time.monotonic()
            return content
        with self._lock:
            self._records.drop(entry.token_ids)
            self._seen = -1  # it may lie there under another name by now
        return None

    def _set_aside(self, name: str, error: DamagedRecordError) -> None:
        self.folder.set_aside(name)
        self._warn(f"{name} is not used: {error}")

    def _warn(self, what: str) -> None:
        """One warning for an engine; the rest goes to those who debug."""
        logger.log(logging.DEBUG if self._warned else logging.WARNING, "prefix store: %s", what)
        self._warned = True

    # ---- keeping

    def want(self, token_ids: Iterable[int]) -> None:
        """Keep this prefix once a request has computed it; at least SHORTEST tokens."""
        ids = tuple(token_ids)
        with self._lock:
            if self._records.get(ids) is None and self._wanted.get(ids) is None:
                self._note(Wanted(ids))

    def ask(self, token_ids: Iterable[int], *, pinned: bool = False) -> Future[Entry]:
        """Keep this prefix, and tell of its record, which the next request that begins with it makes.

        Raises:
            StoreError: it is too short.
        """
        ids = tuple(token_ids)
        if len(ids) < SHORTEST:
            raise StoreError(f"a prefix of {len(ids)} tokens is not worth a record; at least {SHORTEST} are needed")
        future: Future[Entry] = Future()
        self.refresh()
        with self._lock:
            stored = self._records.get(ids)
            if stored is None:
                asked = self._wanted.get(ids)
                if asked is not None and asked.saved is not None and not asked.taken:  # two ask at the same time
                    asked.pinned = asked.pinned or pinned
                    return asked.saved
                self._note(Wanted(ids, pinned, future))
                return future
        if pinned and not stored.pinned:
            self.pin(stored, True)
        future.set_result(stored)
        return future

    def _note(self, wanted: Wanted) -> None:
        self._wanted.put(wanted.token_ids, wanted)
        if len(self._wanted) > MOST_WANTED:
            self._wanted.drop(next(iter(self._wanted))[0])

    def due(self, token_ids: Sequence[int]) -> list[Wanted]:
        """What is to be kept of a prompt with these tokens."""
        with self._lock:
            return [wanted for _, wanted in self._wanted.contained(token_ids) if self._is_due(wanted)]

    def _is_due(self, wanted: Wanted) -> bool:
        if wanted.saved is not None:
            return not wanted.taken
        return not self.off and wanted.token_ids not in self._pending and self._records.get(wanted.token_ids) is None

    def take(self, wanted: Wanted) -> bool:
        """Whether it is now up to the caller to `keep` this, or to give it up."""
        with self._lock:
            if not self._is_due(wanted):
                return False
            wanted.taken = True
            self._pending.add(wanted.token_ids)
            return True

    def keep(self, wanted: Wanted, content: Content) -> None:
        """Write this, which was taken. Waits for nothing: where too much is to be written already, it is given up."""
        if self._closed:
            self.give_up(wanted, StoreError("the prefix was not stored: the engine was closed"))
            return
        try:
            self._start_writer()
            self._queue.put_nowait((wanted, content))
        except Full:
            self.give_up(wanted, StoreError("the disk is too slow: four prefixes wait to be written already"))

    def give_up(self, wanted: Wanted, error: StoreError) -> None:
        """Nothing comes of this, which was taken; who asked for it hears why."""
        with self._lock:
            self._pending.discard(wanted.token_ids)
            if wanted.saved is not None:
                self._let_go(wanted)
                wanted.saved.set_exception(error)

    def _let_go(self, wanted: Wanted) -> None:
        """It is wanted no more, unless somebody has asked anew since."""
        now = self._wanted.get(wanted.token_ids)
        if now is wanted or (now is not None and now.saved is None):
            self._wanted.drop(wanted.token_ids)

    # ---- the writer

    def _start_writer(self) -> None:
        if self._writer is None:
            self._writer = threading.Thread(target=self._write_all, name="yaie-prefix-store", daemon=True)
            self._writer.start()

    def _write_all(self) -> None:
        while (item := self._queue.get()) is not None and not self._closed:
            wanted, content = item
            try:
                entry = self._write(wanted, content)
            except (OSError, StoreError) as error:
                why = (error.strerror or repr(error)) if isinstance(error, OSError) else str(error)
                if not isinstance(error, StoreError):
                    self.off = why
                self._warn(f"nothing more is written: {why}" if self.off else why)
                self.give_up(wanted, StoreError(f"the prefix was not stored: {why}"))
            except Exception as error:  # the thread must live, or every later save would wait in vain
                self._warn(f"a prefix could not be written: {error!r}")
                self.give_up(wanted, StoreError(f"the prefix was not stored: {error!r}"))
            else:
                if wanted.saved is not None:
                    wanted.saved.set_result(entry)
            release_workers()  # the engine computes, and this thread has long to wait
        while item is not None:  # nobody is to wait for what is dropped
            self.give_up(item[0], StoreError("the prefix was not stored: the engine was closed"))
            try:
                item = self._queue.get_nowait()
            except Empty:  # it was so full that `close` could not say that nothing follows
                break
        self.folder.close()

    def _write(self, wanted: Wanted, content: Content) -> Entry:
        if not content.is_sound():
            raise StoreError("a prefix whose KV is not finite is not stored")
        body = content.body()
        head = head_of(self._identity, time.time(), wanted.token_ids, body)
        name = self.folder.write(head, body, pinned=wanted.pinned)
        entry = Entry(wanted.token_ids, name, head.num_bytes + len(body), head.created, head.created)
        with self._lock:
            self._records.put(wanted.token_ids, entry)
            self._pending.discard(wanted.token_ids)
            self._let_go(wanted)
            self.off = ""
        self.refresh()  # so that no request looks at the folder for what is known
        return entry

    def close(self) -> None:
        """Write what is queued, for at most CLOSE_S seconds; then nothing is read or written any more. Idempotent."""
        writer, self._writer = self._writer, None
        if writer is not None:
            deadline = time.monotonic() + CLOSE_S
            try:
                self._queue.put(None, timeout=CLOSE_S)
            except Full:
                self._closed = True
            writer.join(max(0.0, deadline - time.monotonic()))
        self._closed = True
        if writer is None or not writer.is_alive():
            self.folder.close()
