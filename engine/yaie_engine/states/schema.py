"""What a model's whole state looks like, learnt by running it: so that a state can be written down, and read again.

Two short sequences of unequal length show which tensors there are, and which of their dimensions grow with the tokens,
those of a sliding window up to what it holds. A record has the tensors alone; whatever else is in a cache object has to
be the same for all states, or a count of their tokens, and is a copy of what this model made. Nothing is unpickled.
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

from .copying import is_sound, leaves_in, put_number, rebuilt, taken_out, tensors_in
from .kept import KeptState

LOGITS, WINDOW = "logits", ".sliding_window"


class UnknownStateError(StoreError):
    """A model keeps something that a record cannot hold."""


@dataclass(frozen=True, slots=True)
class Dimension:
    """`size` numbers; with `grows` so many more as there are tokens, or as are kept of them, at most `most`."""

    size: int
    grows: bool
    most: int | None = None

    def at(self, num_tokens: int) -> int:
        """Its size in the state after so many tokens."""
        return self.size + (kept_of(num_tokens, self.most) if self.grows else 0)


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

    A part of None is a tensor that is the same in all states; the skeleton has it. `counters` are the places of numbers
    that are so much more than the count of tokens. `description` says all of it in words, for the identity of records.
    `row` are the logits of one token.
    """

    skeleton: object
    parts: tuple[Part | None, ...]
    counters: dict[str, int]
    description: str
    row: Slot

    def slots(self, num_tokens: int) -> Slots:
        """What a record of the state after so many tokens holds; the logits may be missing."""
        return {part.place: part.slot(num_tokens) for part in self.parts if part is not None} | {LOGITS: self.row}

    def body(self, kept: KeptState) -> memoryview:
        """The body of a record.

        Raises:
            StoreError: a tensor has another shape than all that was seen of this model, or a number another value.
        """
        self._check_the_rest(kept)
        pairs = zip(self.parts, tensors_in(kept.state), strict=True)
        named = {part.place: tensor for part, tensor in pairs if part is not None}
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
        pairs = zip(self.parts, tensors_in(self.skeleton), strict=True)
        made = rebuilt(self.skeleton, (same.clone() if part is None else named[part.place] for part, same in pairs))
        for place, more in self.counters.items():
            put_number(made, place, num_tokens + more)
        return made, named.get(LOGITS)

    def _check_the_rest(self, kept: KeptState) -> None:
        """Raise StoreError unless what a record leaves out follows from what this model made at load."""
        count, plain = len(kept.token_ids), dict(leaves_in(kept.state))
        wrong = [place for place, more in self.counters.items() if plain.get(place) != count + more]
        mine, same = (
            {place: words for place, words in _plain(state).items() if place not in self.counters}
            for state in (kept.state, self.skeleton)
        )
        wrong += [place for place in mine | same if mine.get(place) != same.get(place)]
        pairs = zip(self.parts, tensors_in(kept.state), tensors_in(self.skeleton), strict=False)
        if wrong or any(part is None and not torch.equal(one, other) for part, one, other in pairs):
            raise StoreError(f"{(wrong or ['a number'])[0]} of this state is not what {count} tokens lead to")


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
    counters = dict(_counters(long, short))
    plain = [
        {place: words for place, words in _plain(state).items() if place not in counters} for state in (long, short)
    ]
    if plain[0] != plain[1]:
        place = next((name for name in plain[0] | plain[1] if plain[0].get(name) != plain[1].get(name)), "")
        raise UnknownStateError(f"{place} of its state is another one after each token, and no tensor")
    pairs, windows = list(zip(_tensors(long), _tensors(short), strict=True)), _windows(long)
    parts = tuple(_part(place, one, other, windows.get(_holder(place))) for (place, one), (_, other) in pairs)
    copied = taken_out(long)[0]
    try:
        for place in counters:
            put_number(copied, place, 0)
    except TypeError as error:
        raise UnknownStateError(str(error)) from error
    empty = (same if part is None else torch.empty(0) for part, same in zip(parts, tensors_in(copied), strict=True))
    words = [f"{name} {value}" for name, value in sorted((plain[0] | counters).items())]
    words += [_line(place, one, part) for ((place, one), _), part in zip(pairs, parts, strict=True)]
    skeleton = rebuilt(copied, list(empty))
    return StateSchema(skeleton, parts, counters, "\n".join(words), Slot((1, row.shape[-1]), row.dtype))


def kept_of(num_tokens: int, most: int | None) -> int:
    """How many of so many tokens are kept."""
    return num_tokens if most is None else min(num_tokens, most)


def _counters(long: object, short: object) -> Iterator[tuple[str, int]]:
    """The places of whole numbers that grow with each token by one, and by how much they are more than their count."""
    other = dict(leaves_in(short))
    for place, number in leaves_in(long):
        if type(number) is int and type(less := other.get(place)) is int and number - less == LENGTHS[0] - LENGTHS[1]:
            yield place, number - LENGTHS[0]


def _windows(state: object) -> dict[str, int]:
    """By the place of a layer with a sliding window: how many tokens it keeps, which transformers makes one less than
    the window. Where that is not so no state has the expected shape, and none is written."""
    found = ((place, leaf) for place, leaf in leaves_in(state) if place.endswith(WINDOW) and type(leaf) is int)
    return {_holder(place): number - 1 for place, number in found}


def _holder(place: str) -> str:
    return place.rpartition(".")[0]


def _line(place: str, one: Tensor, part: Part | None) -> str:
    if part is None:
        return f"{place} {one.dtype} {one.tolist()}"
    return f"{place} {part.dtype} {[(each.size, each.grows, *_most(each)) for each in part.dimensions]}"


def _most(each: Dimension) -> list[int]:
    return [] if each.most is None else [each.most]


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


def _part(place: str, long: Tensor, short: Tensor, most: int | None) -> Part | None:
    if long.dtype not in DTYPES and long.dtype == short.dtype and torch.equal(long, short):
        return None
    if long.dim() != short.dim() or long.dtype != short.dtype or long.dtype not in DTYPES or place == LOGITS:
        raise UnknownStateError(f"{place} of its state is {_words(long)}, and {_words(short)} after fewer tokens")
    dimensions = []
    kept, fewer = (kept_of(length, most) for length in LENGTHS)
    for one, other in zip(long.shape, short.shape, strict=True):
        if one - other not in (0, kept - fewer):
            raise UnknownStateError(f"{place} of its state is {_words(long)}, and {_words(short)} after fewer tokens")
        grows = one != other
        dimensions.append(Dimension(one - kept if grows else one, grows, most if grows else None))
    return Part(place, tuple(dimensions), long.dtype)


def _words(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"
