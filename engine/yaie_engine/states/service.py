"""Kept states at work in an engine: what `LLM.prefixes` is for a model of tier "state"."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING

from yaie_engine.errors import EngineDeadError, StoreError
from yaie_engine.generation import Generation
from yaie_engine.params import SamplingParams
from yaie_engine.request import Request
from yaie_engine.store.boundary import WORTH_KEEPING, Messages, SystemParts
from yaie_engine.store.index import SHORTEST

from .kept import KeptState, KeptStates

if TYPE_CHECKING:
    from yaie_engine.engine import LLMEngine


class StatePrefixes:
    """What `LLM` asks of the states that its engine keeps in memory. Any thread."""

    def __init__(self, kept: KeptStates, engine: LLMEngine, render: Callable[..., list[int]]) -> None:
        """`render(messages, **template)` gives prompt ids."""
        self.kept = kept
        self._engine = engine
        self._parts = SystemParts(render)

    def entries(self, wait: bool = True) -> list[KeptState]:
        """What is kept, most recently used first; with `wait`, for a step that runs, also of who has just ended."""
        if wait:
            with suppress(EngineDeadError):
                self._engine.call(self.kept.settle)
        return self.kept.entries()

    def pin(self, labels: Collection[str], pinned: bool) -> int:
        """Whether these stay when room is needed; how many there are."""
        named = self._named(labels)
        for kept in named:
            self.kept.pin(kept, pinned)
        return len(named)

    def clear(self, labels: Collection[str]) -> tuple[int, int]:
        """Forget these; how many there were, and their bytes."""
        return self.kept.clear(self._named(labels))

    def load(self, labels: Collection[str]) -> list[int]:
        """States are where they are needed: no token comes."""
        return [0] * len(self._named(labels))

    def remarks(self) -> list[str]:
        """What else there is to be said."""
        paused = "Nothing is kept or used while a trace or anomaly mode looks at each token."
        return [paused] if self.kept.paused else []

    @property
    def trouble(self) -> str:
        """What does not work now, in words; "" when all does."""
        return "nothing is kept or used while each token is looked at" if self.kept.paused else ""

    @property
    def limit(self) -> int:
        """The most bytes."""
        return self.kept.limit

    @property
    def where(self) -> str:
        """Where they lie."""
        return "memory"

    def _named(self, labels: Collection[str]) -> list[KeptState]:
        return [kept for kept in self.kept.entries() if kept.label in labels]

    def before(self, _: Request) -> None:
        """Nothing is to be read for a request: the scheduler finds its state."""

    def note_chat(self, messages: Messages, token_ids: list[int], template: dict[str, object]) -> None:
        """Have the state after the system part of this chat kept, once it is computed."""
        part = self._parts.of(messages, token_ids, template)
        if len(part) >= WORTH_KEEPING:
            self.kept.want(part)

    def save(
        self, token_ids: list[int], pinned: bool, submit: Callable[[list[int], SamplingParams], Generation]
    ) -> KeptState:
        """Keep the state after these tokens, which is computed where it is not there.

        Raises:
            StoreError: it is too short, or there is no room.
            RequestError: they are no prompt for this engine.
        """
        if len(token_ids) < SHORTEST:
            raise StoreError(
                f"a prefix of {len(token_ids)} tokens is not worth keeping; at least {SHORTEST} are needed"
            )
        if self.kept.get(token_ids) is None:
            output = submit(token_ids, SamplingParams(max_tokens=1, temperature=0, ignore_eos=True)).result()
            if output.error is not None:
                raise output.error
        found = self.kept.get(token_ids)
        if found is None:
            raise StoreError(
                f"the state after {len(token_ids)} tokens was not kept: {self.kept.num_bytes / 2**20:,.1f} of at most "
                f"{self.kept.limit / 2**20:,.1f} MiB are taken; unpin or clear some"
            )
        if pinned:
            self.kept.pin(found, True)
        return found

    @property
    def into(self) -> str:
        """Where they are brought, which is where they are."""
        return "memory"

    @property
    def beside(self) -> str:
        """There is nothing else."""
        return ""

    def closing(self) -> AbstractContextManager[None]:
        """States end with their engine."""
        return nullcontext()
