"""Calls of an op are checked and planned once, and from then on only started.

A plan depends on the shapes, strides and types of an op's tensors, on the low bits of their addresses, on the numbers
beside them and on the launcher. Calls that agree in these differ in addresses alone: checks would find the same, and
the launches have the same grid and parameters but for pointers.
"""

from __future__ import annotations

import ctypes
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from operator import attrgetter, itemgetter
from struct import Struct
from typing import Any, Concatenate, NamedTuple, ParamSpec, get_type_hints

import torch
from torch import Tensor

from .kernel import Launcher, Specialisation

P = ParamSpec("P")
LOW_BITS = 31  # of an address: two accesses of 16 bytes, as of float32 angles beside 16-bit heads, see `access_width`
_address, _stride = Tensor.data_ptr, Tensor.stride
_shape, _dtype = attrgetter("shape"), attrgetter("dtype")
_Pick = Callable[[Sequence[Any]], tuple[Any, ...]]


class Room(NamedTuple):
    """A buffer of the launcher's workspace, on the device of the op's first tensor.

    `zero`: it is cleared when a call is prepared. The kernels leave it zero, unless they fail or are other ones.
    """

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    zero: bool = False


@dataclass(frozen=True, slots=True)
class Launch:
    """A launch but for its addresses.

    `numbers` are the fields of the parameter struct that are no pointers; those left out are 0. A pointer is the op's
    argument of the same name, and null where that is None or there is none; `pointers` says otherwise for some: the
    name of an argument, a room, or None.
    """

    specialisation: Specialisation
    grid: tuple[int, int, int]
    numbers: Mapping[str, object]
    pointers: Mapping[str, str | Room | None] = field(default_factory=dict)


class _Ready(NamedTuple):
    """A launch whose parameters are `pack(*order(addresses)) + numbers`."""

    specialisation: Specialisation
    grid: tuple[int, int, int]
    order: _Pick
    pack: Callable[..., bytes]
    numbers: bytes
    params: Callable[[bytes], ctypes.Structure]


class _Prepared(NamedTuple):
    """The launches of one call, in their order; addresses are null, the present tensors', and the rooms'."""

    rooms: tuple[Room, ...]
    launches: tuple[_Ready, ...]


class _Form:
    """How the arguments of an op are taken apart, given which of the optional tensors are there."""

    def __init__(self, names: Sequence[str], present: Sequence[int]) -> None:
        self.names = [names[i] for i in present]
        self.tensors = _picker(present)
        self.others = _picker([i for i in range(len(names)) if i not in present])
        self.pack = Struct(f"<{len(present)}Q").pack
        self.low_bits = int.from_bytes(LOW_BITS.to_bytes(8, "little") * len(present), "little")


def _picker(places: Sequence[int]) -> _Pick:
    """The items at `places` of a sequence, as a tuple."""
    if len(places) > 1:
        return itemgetter(*places)
    return itemgetter(slice(places[0], places[0] + 1) if places else slice(0))


def prepared(plan: Callable[Concatenate[Launcher, P], tuple[Launch, ...]]) -> Callable[Concatenate[Launcher, P], None]:
    """The op whose launches `plan` finds: called with arguments unlike all before, and the plan kept by the launcher.

    `plan` raises ValueError for what no kernel takes; it reads no tensor's content, and of addresses only what
    `LOW_BITS` covers. Thread: any.
    """
    names = list(inspect.signature(plan).parameters)[1:]
    hints = get_type_hints(plan)
    tensors = [i for i, name in enumerate(names) if hints[name] in (Tensor, Tensor | None)]
    optional = [i for i in tensors if hints[names[i]] != Tensor]
    bind = inspect.signature(plan).bind
    whole = _Form(names, tensors)

    @functools.cache
    def form_of(absent: tuple[bool, ...]) -> _Form:
        gone = {i for i, is_absent in zip(optional, absent, strict=True) if is_absent}
        return _Form(names, [i for i in tensors if i not in gone])

    def run(launcher: Launcher, /, *arguments: P.args, **named: P.kwargs) -> None:
        given: tuple[Any, ...] = arguments
        if named or len(given) != len(names):
            given = bind(launcher, *arguments, **named).args[1:]
        form = form_of(tuple([given[i] is None for i in optional])) if optional else whole
        present = form.tensors(given)
        addresses = [*map(_address, present)]
        low_bits = int.from_bytes(form.pack(*addresses), "little") & form.low_bits
        key = (plan, form.others(given), low_bits, *map(_stride, present), *map(_shape, present), *map(_dtype, present))
        found = launcher.prepared.get(key)
        if found is None:
            epoch = launcher.prepared.epoch
            found = _prepare(plan(launcher, *given), names, form)  # type: ignore[call-arg]
            if _clear(launcher, found, present[0].device):
                launcher.prepared.keep(key, found, epoch)
        _start(launcher, found, addresses, present[0])

    functools.update_wrapper(run, plan)
    return run


def _prepare(launches: Sequence[Launch], names: Sequence[str], form: _Form) -> _Prepared:
    """Names become places among the addresses, and numbers bytes."""
    rooms: dict[Room, int] = {}

    def place(pointer: str | Room | None) -> int:
        if isinstance(pointer, Room):
            return 1 + len(form.names) + rooms.setdefault(pointer, len(rooms))
        return 1 + form.names.index(pointer) if pointer in form.names else 0

    ready = []
    for launch in launches:
        kernel = launch.specialisation.kernel
        fields = [name for name, _ in takewhile(lambda field: field[1] == "p", kernel.fields)]
        unknown = {one for one in launch.pointers.values() if isinstance(one, str)} - set(names)
        if unknown or not launch.pointers.keys() <= set(fields):
            raise LookupError(f"{kernel.name}: pointers {fields}, arguments {names}, planned {dict(launch.pointers)}")
        order = _picker([place(launch.pointers.get(name, name)) for name in fields])
        numbers = bytes(kernel.params(**launch.numbers))[8 * len(fields) :]
        pack, params = Struct(f"<{len(fields)}Q").pack, kernel.params.from_buffer_copy
        ready.append(_Ready(launch.specialisation, launch.grid, order, pack, numbers, params))
    return _Prepared(tuple(rooms), tuple(ready))


def _clear(launcher: Launcher, found: _Prepared, device: torch.device) -> bool:
    """Clear the rooms that must be zero. Whether they now are: what a CUDA graph captures is done at its replay."""
    zeros = [room for room in found.rooms if room.zero]
    for name, shape, dtype, _ in zeros:
        launcher.workspace(name, shape, dtype, device).zero_()
    return not (zeros and device.type == "cuda" and torch.cuda.is_current_stream_capturing())


def _start(launcher: Launcher, found: _Prepared, addresses: Sequence[int], first: Tensor) -> None:
    """Launch with these addresses; with buffers while nobody else launches with them, as the parts hang together."""
    if not found.rooms:
        _launch(launcher, found, [0, *addresses])
        return
    device = first.device
    with launcher.prepared.turn:
        # Buffers stay alive until all is launched: one may outgrow another of its name.
        rooms = [launcher.workspace(name, shape, dtype, device) for name, shape, dtype, _ in found.rooms]
        _launch(launcher, found, [0, *addresses, *map(_address, rooms)])


def _launch(launcher: Launcher, found: _Prepared, known: Sequence[int]) -> None:
    try:
        for specialisation, grid, order, pack, numbers, params in found.launches:
            launcher.launch(specialisation, grid, params(pack(*order(known)) + numbers))
    except BaseException:
        launcher.prepared.forget()
        raise
