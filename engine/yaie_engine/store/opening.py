"""The folder, the store and its service of an engine, from its configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from yaie_engine.config import EngineConfig
from yaie_engine.errors import ConfigError
from yaie_engine.loaded import LoadedModel
from yaie_engine.runner import After, ModelRunner
from yaie_engine.states.reading import StateReader, StateRecord
from yaie_engine.states.schema import StateSchema, UnknownStateError, schema_of
from yaie_engine.states.service import StatePrefixes
from yaie_engine.states.stored import StoredStates

from .capture import BlockCapture
from .folder import RecordFolder
from .kv import PrefixKV, from_body, identity_of
from .prefix_store import PrefixStore
from .reading import BlockReader
from .service import StoredBlocks

if TYPE_CHECKING:
    from yaie_engine.engine import LLMEngine

Render = Callable[..., list[int]]
Prefixes = StoredBlocks | StoredStates | StatePrefixes
"""What keeps prefixes beyond the blocks of an engine."""


@dataclass(frozen=True, slots=True)
class BlockStore:
    """A store of KV, and what copies it out of blocks."""

    store: PrefixStore[PrefixKV]
    capture: BlockCapture

    @property
    def after(self) -> After:
        """What looks at each forward."""
        return self.capture.look

    def serve(self, engine: LLMEngine, render: Render) -> StoredBlocks:
        """The service of an engine."""
        self.capture.serve(engine)
        return StoredBlocks(self.store, BlockReader(self.store, engine), render, self.capture)


@dataclass(frozen=True, slots=True)
class StateStore:
    """A store of whole states, which their tier hands out by itself."""

    store: PrefixStore[StateRecord]
    schema: StateSchema
    after: None = None

    def serve(self, engine: LLMEngine, render: Render) -> StoredStates | None:
        """The service of an engine."""
        kept = engine.runner.kept if isinstance(engine.runner, ModelRunner) else None
        if kept is None:
            return None
        return StoredStates(self.store, StateReader(self.store, engine, kept), render, kept, self.schema)


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
    if config.state_cache_gib == 0:
        raise ConfigError("prefix_store: with state_cache_gib=0 there is no place for a state; leave one of them out")
    folder = RecordFolder(config.prefix_store, int(config.prefix_store_gib * 2**30))
    try:
        yield folder
    except BaseException:
        folder.close()
        raise


def open_store(folder: RecordFolder | None, loaded: LoadedModel) -> BlockStore | StateStore | None:
    """The store of a model.

    Raises:
        ConfigError: what it keeps cannot be stored.
    """
    if folder is None:
        return None
    if loaded.source is None:
        raise ConfigError(
            "prefix_store: a model object that was handed in may change at any time; give a folder or a name"
        )
    if loaded.shares_prefixes:
        identity = identity_of(loaded.model, loaded.fingerprint, loaded.dtype, loaded.kv_layout)
        store = PrefixStore(folder, identity, partial(from_body, layout=loaded.kv_layout, dtype=loaded.dtype))
        return BlockStore(store, BlockCapture(store, loaded.kv_layout, loaded.dtype))
    try:
        schema = schema_of(loaded)
    except UnknownStateError as error:
        raise ConfigError(f"prefix_store: {loaded.name} cannot be stored: {error}; leave it out") from error
    identity = identity_of(loaded.model, loaded.fingerprint, loaded.dtype, loaded.kv_layout, schema.description)
    return StateStore(PrefixStore(folder, identity, schema.state), schema)


def make_prefixes(store: BlockStore | StateStore | None, engine: LLMEngine, render: Render) -> Prefixes | None:
    """What keeps prefixes beyond the blocks of an engine. `render(messages, **template)` gives prompt ids."""
    if store is not None:
        return store.serve(engine, render)
    kept = engine.runner.kept if isinstance(engine.runner, ModelRunner) else None
    return None if kept is None else StatePrefixes(kept, engine, render)
