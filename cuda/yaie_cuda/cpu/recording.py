"""A function of tensors that was run once and recorded, then runs again without its Python.

This is on a CPU what a CUDA graph is on a GPU: whatever changes between two runs lies in tensors whose addresses stay.
Calls of CPU kernels lie in an array that one loop walks. What torch does between them (rows of an embedding, the tables
of a rotary embedding) is called again, and its result goes to where it was. Views follow by themselves.
"""

from __future__ import annotations

import struct
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, UntypedStorage
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from .library import Function, check, library

_aten = torch.ops.aten
_EMPTY = {
    *(_aten.empty.memory_format, _aten.empty_like.default, _aten.empty_strided.default),
    *(_aten.new_empty.default, _aten.new_empty_strided.default),
}
_REFUSED = {
    torch.Tag.data_dependent_output: "reads numbers out of a tensor",
    torch.Tag.dynamic_output_shape: "gives a tensor whose shape depends on numbers",
    torch.Tag.nondeterministic_seeded: "draws at random",
}
_active = threading.local()
CHUNK, SPARE = 2**23, 4
"""Bytes that a room grows by; where a piece is larger, by so many times the piece, as the next recording may have more
rows. What nobody writes to takes no memory."""
ALIGNED = 64


class RecordingError(RuntimeError):
    """What was run cannot be recorded; the text names the operation."""


class MovedError(RecordingError):
    """A tensor that a recorded call reads or writes lies elsewhere now: record anew."""


def active() -> Recording | None:
    """The recording that this thread makes."""
    return getattr(_active, "recording", None)


class Room:
    """Where tensors lie that are empty until something is written to them. Recordings use it one after the other, since
    only one of them runs at a time and none reads what another one left."""

    def __init__(self) -> None:
        self._chunks: list[Tensor] = []
        self._chunk = self._used = 0

    def begin(self) -> None:
        """From the start again."""
        self._chunk = self._used = 0

    def like(self, tensor: Tensor) -> Tensor:
        """A tensor of the same shape, strides and dtype."""
        size = tensor.untyped_storage().nbytes()
        while self._chunk < len(self._chunks) and self._used + size > len(self._chunks[self._chunk]):
            self._chunk, self._used = self._chunk + 1, 0
        if self._chunk == len(self._chunks):
            self._chunks.append(torch.empty(CHUNK if size <= CHUNK else SPARE * size, dtype=torch.uint8))
        piece = self._chunks[self._chunk][self._used : self._used + size]
        self._used += -(-size // ALIGNED) * ALIGNED
        return piece.view(tensor.dtype).as_strided(tensor.shape, tensor.stride())

    @property
    def num_bytes(self) -> int:
        """Of all chunks."""
        return sum(map(len, self._chunks))


class Recording(TorchDispatchMode):
    """What one run did, in order. It keeps the memory of the run: calls hold addresses only."""

    def __init__(self, room: Room) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        room.begin()
        self._room = room
        self._steps: list[Callable[[], None]] = []
        self._calls: list[tuple[Function, tuple[Any, ...]]] = []
        self._made: dict[int, UntypedStorage] = {}
        self._given: dict[int, tuple[Tensor, UntypedStorage, int]] = {}
        self.own_bytes = self.room_bytes = 0
        """Of the tensors that were made: those that this recording keeps for itself, and those in the room."""

    @property
    def num_operations(self) -> int:
        """Operations of torch, and tensors that calls were given."""
        return len(self._steps) + len(self._given)

    def call(self, function: Function, arguments: tuple[Any, ...], tensors: tuple[Tensor | None, ...]) -> None:
        """Note a call whose last argument is the number of threads; `tensors` are what it reads and writes."""
        self._calls.append((function, arguments))
        for one in tensors:
            if one is not None and one.untyped_storage()._cdata not in self._made:
                self._given[id(one)] = one, one.untyped_storage(), one.data_ptr()

    def finish(self) -> Callable[[], None]:
        """What runs everything again, on as many threads as torch has then. Its results lie where they lay.

        It raises MovedError, before anything is written, where a tensor that the run was given (a parameter, say) has
        other memory now. Until then it keeps the old one: somebody may change it while a replay reads.
        """
        self._flush()
        steps, given = tuple(self._steps), tuple(self._given.values())
        kept = self._room, tuple(self._made.values())

        def replay() -> None:
            for tensor, _, address in given:
                if tensor.data_ptr() != address:
                    raise MovedError(f"a tensor {list(tensor.shape)} that was recorded has other memory now")
            for step in steps:
                step()
            _ = kept

        return replay

    @contextmanager
    def running(self) -> Iterator[None]:
        """Record what this thread does meanwhile."""
        if active() is not None:
            raise RecordingError("this thread makes a recording already")
        _active.recording = self
        try:
            with self:
                yield
        finally:
            _active.recording = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func._can_decompose():  # in inference mode operations that are made of others come whole
            with self:
                parts = func.decompose(*args, **kwargs)
            if parts is not NotImplemented:
                return parts
        refused = [what for tag, what in _REFUSED.items() if tag in func.tags and not _by_numbers(func, args)]
        if refused:
            raise RecordingError(f"{func} {refused[0]}")
        out = func(*args, **kwargs)
        results = tree_leaves(out)
        if not all(isinstance(one, Tensor) and one.device.type == "cpu" for one in results):
            raise RecordingError(f"{func} gives something else than tensors of a CPU")
        if func in _EMPTY and out.numel():  # one that is empty for good may be given as `out`, and grow
            return self._placed(out)
        self._note(func, args, kwargs, results)
        return out

    def _placed(self, empty: Tensor) -> Tensor:
        placed = self._room.like(empty)
        self.room_bytes += empty.untyped_storage().nbytes()
        self._made[placed.untyped_storage()._cdata] = placed.untyped_storage()
        return placed

    def _note(self, func: Any, args: Any, kwargs: Any, results: list[Tensor]) -> None:
        storages = {one.untyped_storage()._cdata: one.untyped_storage() for one in results}
        made = storages.keys() - _storages((args, kwargs)) - self._made.keys()
        self.own_bytes += sum(storages[key].nbytes() for key in made)
        self._made |= {key: storages[key] for key in made}
        if made or func._schema.is_mutable:
            self._flush()
            self._steps.append(partial(_repeat, partial(func, *args, **kwargs), results))

    def _flush(self) -> None:
        if self._calls:
            self._steps.append(Calls(self._calls))
            self._calls = []


class Calls:
    """Recorded calls of kernels, run in one go and without the interpreter."""

    def __init__(self, calls: list[tuple[Function, tuple[Any, ...]]]) -> None:
        slots = [_slot(*pair) for function, arguments in calls for pair in zip(function.codes, arguments, strict=True)]
        self._slots = np.array(slots, dtype=np.uint64)
        ends = np.cumsum([len(arguments) for _, arguments in calls])
        self._threads = ends - 1  # where the last argument of each call lies
        starts = self._slots.ctypes.data + 8 * np.concatenate(([0], ends[:-1]))
        table = [(function.recorded, start) for (function, _), start in zip(calls, starts.tolist(), strict=True)]
        self._table, self._count = np.array(table, dtype=np.uint64), len(calls)
        self._replay = library().replay

    def __call__(self) -> None:
        self._slots[self._threads] = torch.get_num_threads()
        check(self._replay(self._table.ctypes.data, self._count))


class Recorder:
    """Records functions of which one runs at a time: they work in the same memory, that of the largest.

    It lives as long as a recording that uses it: once all were dropped, the next one begins a new room.
    """

    def __init__(self) -> None:
        self._room: Callable[[], Room | None] = lambda: None

    @property
    def room(self) -> Room:
        """Where the recordings work."""
        room = self._room() or Room()
        self._room = weakref.ref(room)
        return room

    def __call__(self, run: Callable[[], Tensor]) -> tuple[Tensor, Callable[[], None]]:
        """Run a function while recording it: its result, and what runs it again into that result, which is valid until
        another one runs.

        Raises:
            RecordingError: something of it cannot be recorded.
        """
        run()  # what is only done once is done by now
        recording = Recording(self.room)
        with recording.running():
            result = run()
        return result, recording.finish()


def _repeat(again: Callable[[], Any], results: list[Tensor]) -> None:
    for old, new in zip(results, tree_leaves(again()), strict=True):
        if old.shape != new.shape:
            raise RecordingError(f"a result has the shape {list(new.shape)}, recorded was {list(old.shape)}")
        if old.data_ptr() != new.data_ptr():
            old.copy_(new)


def _by_numbers(func: Any, args: Any) -> bool:
    """Whether this picks entries by their numbers, not by a mask: then the shape of the result is known."""
    masks = torch.bool, torch.uint8
    return func is _aten.index.Tensor and not any(one is not None and one.dtype in masks for one in args[1])


def _storages(value: Any) -> set[int]:
    return {leaf.untyped_storage()._cdata for leaf in tree_leaves(value) if isinstance(leaf, Tensor)}


def _slot(code: str, value: float) -> int:
    if code == "f":
        return int.from_bytes(struct.pack("<f", value), "little")
    return int(value) & 0xFFFFFFFFFFFFFFFF
