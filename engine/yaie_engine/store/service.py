"""The prefix store at work in an engine: before a request is queued, after a chat is rendered, when a user saves."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from yaie_cuda import sources
from yaie_engine.config import EngineConfig
from yaie_engine.errors import ConfigError, StoreError
from yaie_engine.generation import Generation
from yaie_engine.loaded import LoadedModel
from yaie_engine.params import SamplingParams
from yaie_engine.request import Request
from yaie_engine.runner import ModelRunner
from yaie_engine.states.service import StatePrefixes

from .boundary import WORTH_KEEPING, Messages, SystemParts
from .folder import RecordFolder
from .kv import identity_of
from .prefix_store import Entry, PrefixStore
from .reading import PrefixReader

if TYPE_CHECKING:
    from yaie_engine.engine import LLMEngine

SAVE_S = 60.0


@contextmanager
def opened_folder(config: EngineConfig) -> Iterator[RecordFolder | None]:
    """The folder that the configuration names, before anything is loaded; closed again where loading fails.

    Raises:
        StoreError: it cannot be used.
        ConfigError: nothing could be stored under these settings.
    """
    if config.prefix_store is None:
        yield None
        return
    if not config.enable_prefix_caching:
        raise ConfigError("prefix_store: with enable_prefix_caching=False nothing is shared; leave one of them out")
    folder = RecordFolder(config.prefix_store, int(config.prefix_store_gib * 2**30))
    try:
        yield folder
    except BaseException:
        folder.close()
        raise


def open_store(folder: RecordFolder | None, loaded: LoadedModel) -> PrefixStore | None:
    """The store of a model.

    Raises:
        ConfigError: its KV cannot be stored.
    """
    if folder is None:
        return None
    why = ""
    if not loaded.shares_prefixes:
        why = f'{loaded.name} is served by tier "{loaded.tier}", whose state is not kept in blocks'
    elif loaded.source is None:
        why = "a model object that was handed in may change at any time; give a folder or a name"
    if why:
        raise ConfigError(f"prefix_store: {why}")
    identity = identity_of(loaded.model, loaded.fingerprint, loaded.dtype, loaded.kv_layout)
    return PrefixStore(folder, identity, loaded.kv_layout, loaded.dtype)


def make_prefixes(
    store: PrefixStore | None, engine: LLMEngine, render: Callable[..., list[int]]
) -> StoredPrefixes | StatePrefixes | None:
    """What keeps prefixes beyond the blocks of an engine. `render(messages, **template)` gives prompt ids."""
    if store is not None:
        return StoredPrefixes(store, engine, render)
    kept = engine.runner.kept if isinstance(engine.runner, ModelRunner) else None
    return None if kept is None else StatePrefixes(kept, engine, render)


class StoredPrefixes:
    """What `LLM` asks of its store. Any thread, but for what it puts into the engine's inbox."""

    def __init__(self, store: PrefixStore, engine: LLMEngine, render: Callable[..., list[int]]) -> None:
        """`render(messages, **template)` gives prompt ids."""
        self.store = store
        self._reader = PrefixReader(store, engine)
        self._parts = SystemParts(render)

    def before(self, request: Request) -> None:
        """A request is about to be queued: let it wait for a record, or leave one, where that is worth it.

        Requests with a cache salt are left out: their prompts stay in memory. One that wants prompt log-probabilities
        reads no cache, but what it computes may be kept.
        """
        seq = request.choices[0].seq
        if seq.namespace or seq.private:
            return
        if not sources.replaced():  # what an edited kernel computes is not to outlive it
            self.store.expect(request.prompt_token_ids, seq.seq_id)
        if seq.read_cache:
            self._reader.begin(seq)

    def note_chat(self, messages: Messages, token_ids: list[int], template: dict[str, Any]) -> None:
        """Have the system part of this chat kept, once it is computed."""
        part = self._parts.of(messages, token_ids, template)
        if len(part) >= WORTH_KEEPING:
            self.store.want(part)

    def save(
        self, token_ids: list[int], pinned: bool, submit: Callable[[list[int], SamplingParams], Generation]
    ) -> Entry:
        """Keep these tokens, which are computed where the engine does not have them.

        Raises:
            StoreError: they cannot be stored; the text says why.
            RequestError: they are no prompt for this engine.
        """
        if sources.replaced():
            raise StoreError("a kernel was edited; nothing is stored until %yaie kernels reset")
        saved = self.store.ask(token_ids, pinned=pinned)
        if not saved.done():
            output = submit(token_ids, SamplingParams(max_tokens=1, temperature=0, ignore_eos=True)).result()
            if output.error is not None:
                raise output.error
        try:
            return saved.result(SAVE_S)
        except TimeoutError:
            raise StoreError(f"the disk has not taken the record within {SAVE_S:.0f} s") from None

    def entries(self, wait: bool = True) -> list[Entry]:
        """The records of this model, most recently used first; there is never anything to `wait` for."""
        return self.store.entries()

    def load(self, labels: Collection[str]) -> list[int]:
        """Bring records into the engine's blocks, as far as nobody else holds these; how many tokens of each came."""
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
        found = []
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
    def limit(self) -> int:
        """The most bytes."""
        return self.store.folder.limit

    @property
    def where(self) -> str:
        """Where they lie."""
        return str(self.store.folder.path)

    def _named(self, labels: Collection[str]) -> list[Entry]:
        return [entry for entry in self.store.entries() if entry.label in labels]

    def close(self) -> None:
        """Write what is queued, read nothing more, and let go of the folder."""
        self._reader.close()
        self.store.close()
