"""What a model's whole state looks like, learnt by running it: so that a state can be written down, and read again.

Two short sequences of unequal length show which tensors there are, and which of their dimensions grow with the tokens.
A record holds the tensors alone; whatever else is in a cache object has to be the same for all states, and is a copy of
what this model made. Nothing is unpickled.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from yaie_engine.errors import StoreError
from yaie_engine.loaded import LoadedModel
from yaie_engine.plan import ScheduledSequence
from yaie_engine.store.body import DTYPES, Slot, Slots, pack, unpack
from yaie_engine.store.record import Body, DamagedRecordError
from yaie_engine.tiers.forward import ForwardCall
from yaie_engine.tiers.measure import LENGTHS, probe_sequences

from .copying import is_sound, leaves_in, rebuilt, taken_out, tensors_in
from .kept import KeptState

LOGITS = "logits"


class UnknownStateError(StoreError):
    """A model keeps something that a record cannot hold."""


@dataclass(frozen=True, slots=True)
class Dimension:
    """`size` numbers; with `grows` so many more as there are tokens."""

    size: int
    grows: bool

    def at(self, num_tokens: int) -> int:
        """Its size in the state after so many tokens."""
        return self.size + (num_tokens if self.grows else 0)


@dataclass(frozen=True, slots=True)
class Part:
    """One tensor of a state."""

    place: str
    dimensions: tuple[Dimension, ...]
    dtype: torch.dtype

    def slot(self, num_tokens: int) -> Slot:
        """Its shape in the state after so many tokens."""
        return Slot(tuple(each.at(num_tokens) for each in self.dimensions), self.dtype)


@dataclass(frozen=True, slots=True)
class StateSchema:
    """The tensors of a model's states, and the `skeleton` around them: a state in host memory, its tensors empty.

    `description` says all of it in words, for the identity of records. `row` are the logits of one token.
    """

    skeleton: object
    parts: tuple[Part, ...]
    description: str
    row: Slot

    def slots(self, num_tokens: int) -> Slots:
        """What a record of the state after so many tokens holds; the logits may be missing."""
        return {part.place: part.slot(num_tokens) for part in self.parts} | {LOGITS: self.row}

    def body(self, kept: KeptState) -> memoryview:
        """The body of a record.

        Raises:
            StoreError: a tensor has another shape than all that was seen of this model.
        """
        named = {part.place: tensor for part, tensor in zip(self.parts, tensors_in(kept.state), strict=True)}
        if isinstance(kept.logits, Tensor):
            named[LOGITS] = kept.logits
        slots = self.slots(len(kept.token_ids))
        for name, tensor in named.items():
            if slots[name] != (tuple(tensor.shape), tensor.dtype):
                raise StoreError(f"{name} of this state is {_words(tensor)}, and {slots[name].shape} was expected")
        return pack(named)

    def state(self, body: Body, num_tokens: int) -> tuple[object, Tensor | None]:
        """The state in a body whose checksum was right, and the logits of its last token where it has them.

        Raises:
            DamagedRecordError: it is no state of this model after so many tokens.
        """
        slots = self.slots(num_tokens)
        if any(size < 1 for slot in slots.values() for size in slot.shape):
            raise DamagedRecordError("it has fewer tokens than a state can stand for")
        named = unpack(body, slots, optional=(LOGITS,))
        return rebuilt(self.skeleton, (named[part.place] for part in self.parts)), named.get(LOGITS)


@dataclass(frozen=True, slots=True)
class StateContent:
    """A kept state, to be written."""

    kept: KeptState
    schema: StateSchema

    def is_sound(self) -> bool:
        """Whether every number is finite."""
        return is_sound(self.kept.state)

    def body(self) -> memoryview:
        """It as safetensors."""
        return self.schema.body(self.kept)


def schema_of(loaded: LoadedModel) -> StateSchema:
    """Run a model of tier "state" for what its states look like; a few tokens, on the calling thread.

    Raises:
        UnknownStateError: they hold more than tensors that grow with their tokens.
    """
    (long, row), (short, _) = _states(loaded)
    plain = [_plain(state) for state in (long, short)]
    if plain[0] != plain[1]:
        place = next((name for name in plain[0] | plain[1] if plain[0].get(name) != plain[1].get(name)), "")
        raise UnknownStateError(f"{place} of its state is another one after each token, and no tensor")
    pairs = zip(_tensors(long), _tensors(short), strict=True)
    parts = tuple(_part(place, one, other) for (place, one), (_, other) in pairs)
    skeleton = rebuilt(taken_out(long)[0], [torch.empty(0) for _ in parts])
    words = [f"{name} {value}" for name, value in sorted(plain[0].items())]
    words += [f"{part.place} {part.dtype} {[(each.size, each.grows) for each in part.dimensions]}" for part in parts]
    return StateSchema(skeleton, parts, "\n".join(words), Slot((1, row.shape[-1]), row.dtype))


def _states(loaded: LoadedModel) -> Iterator[tuple[object, Tensor]]:
    """The states after LENGTHS tokens, and the logits of the last one; the first took one of them by itself."""
    call = ForwardCall(loaded.model)
    for seq, cuts in zip(probe_sequences(loaded.vocab_size), ((LENGTHS[0] - 1, LENGTHS[0]), LENGTHS[1:]), strict=True):
        state, row = None, torch.empty(0)
        for start, stop in pairwise((0, *cuts)):
            entry = ScheduledSequence(seq, start, stop - start, start, "prefill", stop == seq.num_tokens)
            with torch.inference_mode():
                row, state = call.chunk(entry, state, torch.tensor([stop - start - 1]), loaded.device)
        yield state, row


def _plain(state: object) -> dict[str, str]:
    """What is no tensor, in words by place; not the device, on which another one may go on."""
    found = {}
    for place, leaf in leaves_in(state):
        if isinstance(leaf, Tensor | torch.device):
            found[place] = type(leaf).__name__
        elif isinstance(leaf, type):
            found[place] = f"{leaf.__module__}.{leaf.__qualname__}"
        elif leaf is None or isinstance(leaf, bool | int | float | str | torch.dtype):
            found[place] = repr(leaf)
        else:
            raise UnknownStateError(f"{place} of its state is {type(leaf).__name__}, and no tensor")
    return found


def _tensors(state: object) -> list[tuple[str, Tensor]]:
    return [(place, leaf) for place, leaf in leaves_in(state) if isinstance(leaf, Tensor)]


def _part(place: str, long: Tensor, short: Tensor) -> Part:
    if long.dim() != short.dim() or long.dtype != short.dtype or long.dtype not in DTYPES or place == LOGITS:
        raise UnknownStateError(f"{place} of its state is {_words(long)}, and {_words(short)} after fewer tokens")
    dimensions = []
    for one, other in zip(long.shape, short.shape, strict=True):
        if one - other not in (0, LENGTHS[0] - LENGTHS[1]):
            raise UnknownStateError(f"{place} of its state is {_words(long)}, and {_words(short)} after fewer tokens")
        grows = one != other
        dimensions.append(Dimension(one - LENGTHS[0] if grows else one, grows))
    return Part(place, tuple(dimensions), long.dtype)


def _words(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"
