"""The prefix store at work in an engine: before a request is queued, after a chat is rendered, when a user saves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from typing import Generic, TypeVar

from yaie_cuda import sources
from yaie_engine.errors import StoreError
from yaie_engine.generation import Generation
from yaie_engine.params import SamplingParams
from yaie_engine.request import Request

from .boundary import WORTH_KEEPING, Messages, SystemParts
from .capture import BlockCapture, MadeRoomError
from .kv import PrefixKV
from .prefix_store import Entry, PrefixStore
from .reading import BlockReader, RecordReader

T = TypeVar("T")
SAVE_S = 60.0
CHANGED = "nothing is stored or read any more, since parts of the model were replaced; load it again"
MOST_TRIES = 3
"""How often a prefix is computed again whose blocks made room before they were copied."""


class StoredPrefixes(ABC, Generic[T]):
    """What `LLM` asks of its store. Any thread, but for what it puts into the engine's inbox."""

    def __init__(self, store: PrefixStore[T], reader: RecordReader[T], render: Callable[..., list[int]]) -> None:
        """`render(messages, **template)` gives prompt ids."""
        self.store, self._reader = store, reader
        self._parts = SystemParts(render)

    @abstractmethod
    def before(self, request: Request) -> None:
        """A request is about to be queued: let it wait for a record, or leave one, where that is worth it.

        Requests with a cache salt are left out: their prompts stay in memory. One that wants prompt log-probabilities
        reads no cache, but what it computes may be kept.
        """

    def note_chat(self, messages: Messages, token_ids: list[int], template: dict[str, object]) -> None:
        """Have the system part of this chat kept, once it is computed."""
        part = self._parts.of(messages, token_ids, template)
        if len(part) >= WORTH_KEEPING and not self.changed:
            self.store.want(part)

    def save(
        self, token_ids: list[int], pinned: bool, submit: Callable[[list[int], SamplingParams], Generation]
    ) -> Entry:
        """Keep these tokens, which are computed where the engine does not have them.

        Raises:
            StoreError: they cannot be stored; the text says why. It may take a step to notice a replaced part.
            RequestError: they are no prompt for this engine.
        """
        if sources.replaced():
            raise StoreError("a kernel was edited; nothing is stored until %yaie kernels reset")
        self._check_unchanged()
        for _ in range(MOST_TRIES - 1):
            with suppress(MadeRoomError):
                return self._save(token_ids, pinned, submit)
        return self._save(token_ids, pinned, submit)

    def _check_unchanged(self) -> None:
        if self.changed:
            raise StoreError(CHANGED)

    def _save(
        self, token_ids: list[int], pinned: bool, submit: Callable[[list[int], SamplingParams], Generation]
    ) -> Entry:
        saved = self.store.ask(token_ids, pinned=pinned)
        if not saved.done():
            output = submit(token_ids, SamplingParams(max_tokens=1, temperature=0, ignore_eos=True)).result()
            if output.error is not None:
                raise output.error
            self._check_unchanged()  # it is noticed when something is computed
        try:
            return saved.result(SAVE_S)
        except TimeoutError:
            raise StoreError(f"the disk has not taken the record within {SAVE_S:.0f} s") from None

    def entries(self, wait: bool = True) -> list[Entry]:
        """The records of this model, most recently used first; there is never anything to `wait` for."""
        return self.store.entries()

    def load(self, labels: Collection[str]) -> list[int]:
        """Bring records into the engine, as far as there is room; how many tokens of each came.

        Raises:
            StoreError: parts of the model were replaced.
        """
        self._check_unchanged()
        return [self._reader.bring(list(entry.token_ids)) for entry in self._named(labels)]

    def pin(self, labels: Collection[str], pinned: bool) -> int:
        """Whether these stay when room is needed; how many there are.

        Raises:
            StoreError: a file is gone, or the disk refuses.
        """
        named = self._named(labels)
        for entry in named:
            self.store.pin(entry, pinned)
        return len(named)

    def clear(self, labels: Collection[str]) -> tuple[int, int]:
        """Remove these records from the disk; how many there were, and their bytes. The engine's blocks stay."""
        return self.store.clear(self._named(labels))

    def remarks(self) -> list[str]:
        """What else there is to be said."""
        found = [f"{CHANGED[0].upper()}{CHANGED[1:]}."] if self.changed else []
        count, size = self.store.others()
        if count:
            found.append(
                f"{size / 2**20:,.1f} MiB of the folder belong to other models or are damaged ({count} files)."
            )
        if self.store.off:
            found.append(
                f"Nothing more is written since a write failed: {self.store.off}. %yaie cache save tries again."
            )
        return found

    @property
    def trouble(self) -> str:
        """What does not work now, in words; "" when all does."""
        found = [CHANGED] if self.changed else []
        found += ["nothing is stored while a kernel is edited"] if sources.replaced() else []
        found += [f"nothing more is written: {self.store.off}"] if self.store.off else []
        return "; ".join([*found, *([f"the folder cannot be read: {self.store.blind}"] if self.store.blind else [])])

    @property
    def changed(self) -> bool:
        """Whether parts of the model were replaced: nothing is captured, saved or read until it is loaded again."""
        return self._reader.changed

    @property
    def limit(self) -> int:
        """The most bytes."""
        return self.store.folder.limit

    @property
    def where(self) -> str:
        """Where they lie."""
        return str(self.store.folder.path)

    def _named(self, labels: Collection[str]) -> list[Entry]:
        return [entry for entry in self.store.entries() if entry.label in labels]

    @property
    def into(self) -> str:
        """Where records are brought."""
        return "blocks"

    @property
    def beside(self) -> str:
        """What is kept in memory as well, in words; "" where that is the engine's blocks."""
        return ""

    @contextmanager
    def closing(self) -> Iterator[None]:
        """While the engine is closed; afterwards what is queued is written, nothing more is read, and the folder is
        let go of."""
        yield
        self._reader.close()
        self.store.close()


class StoredBlocks(StoredPrefixes[PrefixKV]):
    """The store of a model whose KV lies in blocks."""

    def __init__(
        self, store: PrefixStore[PrefixKV], reader: BlockReader, render: Callable[..., list[int]], capture: BlockCapture
    ) -> None:
        super().__init__(store, reader, render)
        self._capture = capture

    def before(self, request: Request) -> None:
        """As above."""
        seq = request.choices[0].seq
        if seq.namespace or seq.private or self.changed:
            return
        if not sources.replaced():  # what an edited kernel computes is not to outlive it
            self._capture.expect(request.prompt_token_ids, seq.seq_id)
        if seq.read_cache:
            self._reader.expect(seq)

    @contextmanager
    def closing(self) -> Iterator[None]:
        """As above; what is being copied is copied first."""
        self._capture.flush()
        with super().closing():
            yield
            self._capture.close()
