"""Whole states on disk, with those in memory in front of them."""

from __future__ import annotations

from collections.abc import Callable, Collection

from yaie_cuda import sources
from yaie_engine.errors import StoreError
from yaie_engine.generation import Generation
from yaie_engine.params import SamplingParams
from yaie_engine.request import Request
from yaie_engine.store.boundary import WORTH_KEEPING, Messages
from yaie_engine.store.prefix_store import Entry, PrefixStore, Wanted
from yaie_engine.store.service import StoredPrefixes

from .kept import KeptState, KeptStates
from .reading import StateReader, StateRecord
from .schema import StateContent, StateSchema


class StoredStates(StoredPrefixes[StateRecord]):
    """What `LLM` asks of the store of a model of tier "state". Any thread.

    A state is on its way to the disk when memory gets it: nothing is copied once more.
    """

    def __init__(
        self,
        store: PrefixStore[StateRecord],
        reader: StateReader,
        render: Callable[..., list[int]],
        kept: KeptStates,
        schema: StateSchema,
    ) -> None:
        super().__init__(store, reader, render)
        self.kept, self._states, self._schema = kept, reader, schema
        kept.made = self._made

    def before(self, request: Request) -> None:
        """As above; what memory has already of what is wanted is written now."""
        seq = request.choices[0].seq
        if seq.salt != "" or self.changed:
            return
        for wanted in self.store.due(request.prompt_token_ids):
            if (found := self.kept.get(wanted.token_ids)) is not None:
                self._keep(wanted, found)
        if seq.read_cache:
            self._reader.expect(seq)

    def note_chat(self, messages: Messages, token_ids: list[int], template: dict[str, object]) -> None:
        """Have the state after the system part of this chat kept, once it is computed."""
        part = self._parts.of(messages, token_ids, template)
        if len(part) >= WORTH_KEEPING:
            self.store.want(part)
            self.kept.want(part)

    def save(
        self, token_ids: list[int], pinned: bool, submit: Callable[[list[int], SamplingParams], Generation]
    ) -> Entry:
        """As above.

        Raises:
            StoreError: as above, or a trace or anomaly mode looks at each token.
        """
        if self.kept.paused:
            raise StoreError("no state is kept while a trace or anomaly mode looks at each token; end it first")
        return super().save(token_ids, pinned, submit)

    def load(self, labels: Collection[str]) -> list[int]:
        """Bring records into memory, as far as there is room; how many tokens of each came."""
        self._check_unchanged()
        named = self._named(labels)
        return [0 if self.kept.get(entry.token_ids) else self._states.take_in(entry) for entry in named]

    @property
    def trouble(self) -> str:
        """As above."""
        paused = "nothing is kept or used while each token is looked at" if self.kept.paused else ""
        return "; ".join(filter(None, (super().trouble, paused)))

    @property
    def into(self) -> str:
        """As above."""
        return "memory"

    @property
    def beside(self) -> str:
        """As above."""
        return self.kept.summary

    def _made(self, made: KeptState) -> None:
        if made.salt == "":
            for wanted in self.store.due(made.token_ids):
                if wanted.token_ids == made.token_ids:
                    self._keep(wanted, made)

    def _keep(self, wanted: Wanted, found: KeptState) -> None:
        """Write a state. One that was asked for shall answer by itself, with its logits."""
        ready = (wanted.saved is None or found.logits is not None) and not self.changed
        if ready and not sources.replaced() and self.store.take(wanted):  # what an edited kernel computed dies with it
            self.store.keep(wanted, StateContent(found, self._schema))
