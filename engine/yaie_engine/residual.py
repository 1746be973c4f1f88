"""The hidden states between the layers of a model, with the addition that is still to be made to them.

A layer of a transformers model says `hidden = residual + sublayer(...)` and norms the sum right after it, in the same
layer or in the next. Its code stays as it is: what it adds to is a `ResidualStream`, which remembers what was added,
and the norm that comes next adds and norms in one launch. Whoever else computes with it, a hook say, gets the sum as
a plain tensor: by operators, methods and torch's functions. What is changed in place stays a stream and is changed for
all who have the same stream, but never in the tensor that the model was given. It is no `torch.Tensor` by isinstance.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

AddAndNorm = Callable[[Tensor, Tensor], Tensor]
"""Adds its first argument to the second in place, and gives the norm of the sum."""
_OF_THE_SUM = frozenset({"shape", "dtype", "device", "ndim", "is_cuda", "requires_grad", "size", "dim"})
_ADDITIONS = frozenset({"add", "__add__", "__radd__"})
_OPERATORS = (
    *("sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor", "lshift", "rshift"),
    *("rsub", "rmul", "rtruediv", "rfloordiv", "rmod", "rpow", "rmatmul", "rand", "ror", "rxor", "rlshift", "rrshift"),
    *("eq", "ne", "lt", "le", "gt", "ge", "neg", "pos", "abs", "invert", "contains", "iter", "reversed"),
    *("len", "bool", "int", "float", "complex", "index", "array", "format"),
)
_IN_PLACE = ("isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "iand", "ior", "ixor", "ilshift", "irshift")


class _Sum:
    """A tensor that grows in place: `ours` while nobody else can have it, `writes` counts what was added."""

    __slots__ = ("ours", "tensor", "writes")

    def __init__(self, tensor: Tensor, ours: bool) -> None:
        self.tensor, self.ours, self.writes = tensor, ours, 0


class ResidualStream:
    """A sum of hidden states [.., hidden] and at most one term that is not added yet.

    Streams that come from each other share the tensor. One that was left behind by an addition in place has no value
    any more: to read it is an error, which the check at load meets before any request does.
    """

    __slots__ = ("_pending", "_sum", "_writes")

    def __init__(self, total: _Sum, pending: Tensor | None) -> None:
        self._sum, self._writes, self._pending = total, total.writes, pending

    @classmethod
    def of(cls, hidden: Tensor | ResidualStream) -> ResidualStream:
        """`hidden` as a stream; a tensor belongs to the caller and is never written."""
        return hidden if isinstance(hidden, cls) else cls(_Sum(hidden, ours=False), None)  # type: ignore[arg-type]

    def normed(self, norm: Callable[[Tensor], Tensor], add_and_norm: AddAndNorm) -> tuple[Tensor, bool]:
        """The norm of the sum, and whether the addition was made on the way."""
        pending, total = self._pending, self._current()
        if pending is None or not total.ours:
            return norm(self._settled().tensor), False
        result = add_and_norm(pending, total.tensor)
        total.writes += 1
        self._writes, self._pending = total.writes, None
        return result, True

    def tensor(self) -> Tensor:
        """The sum. The caller may keep it: it is not written any more."""
        total = self._settled()
        total.ours = False
        return total.tensor

    def peek(self) -> Tensor:
        """The sum, for who only looks at it now: nothing is settled, and the tensor may be written later."""
        total = self._current().tensor
        return total if self._pending is None else total + self._pending

    def __add__(self, other: Any) -> Any:
        like = self._current().tensor
        if not isinstance(other, Tensor) or (other.shape, other.dtype) != (like.shape, like.dtype):
            return self.tensor() + (other.tensor() if isinstance(other, ResidualStream) else other)
        return ResidualStream(self._settled(), other)

    __radd__ = __add__
    __hash__ = object.__hash__

    def __iadd__(self, other: Any) -> ResidualStream:
        return self._become(self + other)

    def __getitem__(self, index: Any) -> Tensor:
        return self.tensor()[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        self._own()[index] = _plain(value)

    def __getattr__(self, name: str) -> Any:
        if name.endswith("_") and not name.endswith("__"):
            return getattr(self._own(), name)
        return getattr(self._sum.tensor if name in _OF_THE_SUM else self.tensor(), name)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Torch's functions see tensors; `tensor + stream` is a stream again."""
        if function.__name__ in _ADDITIONS and len(args) == 2 and not kwargs:
            one, other = args
            return other + one if isinstance(other, cls) else one + other
        return function(*map(_plain, args), **{name: _plain(value) for name, value in (kwargs or {}).items()})

    def _become(self, value: ResidualStream | Tensor) -> ResidualStream:
        """Take the value of another, which may be a sum of this one."""
        other = ResidualStream.of(value)
        self._sum, self._writes, self._pending = other._sum, other._writes, other._pending
        return self

    def _own(self) -> Tensor:
        """The sum as a tensor that no other stream has, to be changed in place."""
        return self._become(self.tensor().clone()).tensor()

    def _settled(self) -> _Sum:
        """The sum with nothing pending."""
        total = self._current()
        if self._pending is not None:
            total = self._sum = _Sum(total.tensor + self._pending, ours=True)
            self._writes, self._pending = 0, None
        return total

    def _current(self) -> _Sum:
        if self._writes != self._sum.writes:
            raise RuntimeError("these hidden states were added to in place and are gone")
        return self._sum


def _operator(name: str, in_place: bool = False) -> Callable[..., Any]:
    """The operator of a tensor for a stream; in place, the stream stays the one it is."""

    def apply(stream: ResidualStream, *args: Any) -> Any:
        tensor = stream._own() if in_place else stream.tensor()
        result = getattr(tensor, name)(*map(_plain, args))
        return stream if in_place and result is not NotImplemented else result

    return apply


for _name in _OPERATORS:
    setattr(ResidualStream, f"__{_name}__", _operator(f"__{_name}__"))
for _name in _IN_PLACE:
    setattr(ResidualStream, f"__{_name}__", _operator(f"__{_name}__", in_place=True))


def streaming(layer: nn.Module) -> Callable[..., Any]:
    """The forward of `layer` whose hidden states, its first argument, come to it as a stream.

    A hook gets them when the layer has run. While there is one they are left as they are: nothing is added in place.
    """
    forward = layer.forward

    def run(*args: Any, **named: Any) -> Any:
        hidden = ResidualStream.of(args[0] if args else named["hidden_states"])
        if layer._forward_hooks:
            hidden.tensor()
        if args:
            return forward(hidden, *args[1:], **named)
        return forward(**{**named, "hidden_states": hidden})

    return run


def _plain(value: Any) -> Any:
    if isinstance(value, ResidualStream):
        return value.tensor()
    if isinstance(value, list | tuple):
        return type(value)(map(_plain, value))
    return value
