"""Named places at which tests let something go wrong: in a step, on its way to the caller, in the store.

A place calls `fault_point` with its name and what it is about to work on. Nothing is armed outside of tests, and then
that is one call and one look at an empty dict, a tenth of a microsecond. The idea is that of FreeBSD's fail points.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Hook = Callable[..., object]

OF_STEP = ("plan", "start", "forward", "sample", "publish")
"""Whose failure is that of all that is in the step, since nobody can tell whose fault it was.

plan (): before a step is planned. start (plan): planned, not queued yet. forward (plan, logits): after the model's
forward, whose KV is written by then. sample (plan, logits): before the tokens are drawn. publish (sequence): between
two sequences that advance."""
OF_REQUEST = ("score", "deliver", "logprobs", "detokenise", "event", "result")
"""Whose failure is that of one request.

score (request, entry): log-probabilities of its prompt. deliver (request, choice): a token of it is passed on. logprobs
(raw): texts of the tokens. detokenise (request, choice). event (request, choice, text): before the reader gets it.
result (request): before its terminal event is made."""
OF_RECORDER = ("record",)
"""Whose failure nobody notices. record (what): "step", "times", "left" or "request"."""
OF_STORE = ("store read", "store write")
"""A failed read is a miss, a failed write loses the record. Both (name): the file's."""
POINTS = (*OF_STEP, *OF_REQUEST, *OF_RECORDER, *OF_STORE)

_armed: dict[str, Hook] = {}


def fault_point(name: str, *context: object) -> None:
    """Call what is armed here, which may raise, or spoil what is in `context`."""
    if _armed and (hook := _armed.get(name)) is not None:
        hook(*context)


@contextmanager
def armed(name: str, hook: Hook) -> Iterator[None]:
    """Have `hook` called at this point by whoever passes it, in any engine of the process.

    Raises:
        ValueError: there is no such point, or it is armed already.
    """
    if name not in POINTS:
        raise ValueError(f"fault point {name!r}: there is none of that name (there are {', '.join(POINTS)})")
    if name in _armed:
        raise ValueError(f"fault point {name!r} is armed already: disarm it first")
    _armed[name] = hook
    try:
        yield
    finally:
        del _armed[name]
