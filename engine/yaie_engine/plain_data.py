"""Reads frozen dataclasses from JSON that nobody vouches for: the way back from `dataclasses.asdict`.

Everything is checked against the types of the fields, and nothing is converted. Imports no torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields
from functools import cache
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from .errors import YaieError

T = TypeVar("T")
Reader = Callable[[Any], Any]
MOST_ITEMS = 10**6
"""Items of one list or mapping, at most."""
LONGEST_TEXT = 10**7
"""Characters of one text, at most."""
BIGGEST = 2**53
"""Whole numbers beyond it are no longer exact in every reader of JSON."""
SIGNED = "signed"
"""Metadata of a field whose numbers may be negative: `field(metadata={SIGNED: True})`."""


class MalformedError(YaieError):
    """A document does not have the form it must have; the text names the first place that is wrong."""

    def __init__(self, problem: str, where: str = "") -> None:
        super().__init__(f"{where.lstrip('.')} {problem}".strip())
        self.problem, self.where = problem, where

    def within(self, part: str) -> MalformedError:
        """The same, told from outside of `part`."""
        return MalformedError(self.problem, f"{part}{self.where}")


def read(kind: type[T], value: Any) -> T:
    """A dataclass from the JSON of its fields: no field may be missing, and none may be there that it does not have.

    Raises:
        MalformedError: something is of another type, out of range or too large.
    """
    form: Any = kind
    found: T = _reader(form)(value)
    return found


def _wrong(value: Any, wanted: str) -> MalformedError:
    shown = repr(value) if not isinstance(value, dict | list) else f"a {type(value).__name__}"
    return MalformedError(f"is {shown if len(shown) <= 60 else shown[:57] + '...'}: {wanted}")


@cache
def _reader(kind: Any, signed: bool = False) -> Reader:
    """What reads a value of a type."""
    origin, inside = get_origin(kind), get_args(kind)
    if origin is Literal:
        return _one_of(inside)
    if origin in (Union, UnionType):
        return _either(inside, signed)
    if origin is tuple:
        return _list(_reader(inside[0], signed)) if inside[1:] == (...,) else _row([_reader(i, signed) for i in inside])
    if origin is dict:
        return _mapping(_reader(inside[1], signed))
    plain: dict[Any, Reader] = {int: _signed if signed else _count, float: _number, str: _text, bool: _flag}
    return plain[kind] if kind in plain else _record(kind)


def _record(kind: Any) -> Reader:
    types = get_type_hints(kind)
    readers = {each.name: _reader(types[each.name], each.metadata.get(SIGNED, False)) for each in fields(kind)}

    def read_record(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _wrong(value, "use an object")
        if value.keys() != readers.keys():
            strange = sorted(map(repr, value.keys() - readers.keys()))
            missing = sorted(readers.keys() - value.keys())
            raise MalformedError(f"has no {missing[0]!r}" if missing else f"has an unknown key {strange[0][:42]}")
        found, name = {}, ""
        try:
            for name, reader in readers.items():
                found[name] = reader(value[name])
        except MalformedError as error:
            raise error.within(f".{name}") from None
        return kind(**found)

    return read_record


def _list(reader: Reader) -> Reader:
    def read_list(value: Any) -> Any:
        if not isinstance(value, list):
            raise _wrong(value, "use a list")
        if len(value) > MOST_ITEMS:
            raise MalformedError(f"has {len(value):,} items, and at most {MOST_ITEMS:,} are read")
        return _each([reader] * len(value), value)

    return read_list


def _row(readers: list[Reader]) -> Reader:
    def read_row(value: Any) -> Any:
        if not isinstance(value, list) or len(value) != len(readers):
            raise _wrong(value, f"use a list of {len(readers)}")
        return _each(readers, value)

    return read_row


def _each(readers: list[Reader], items: list[Any]) -> tuple[Any, ...]:
    found: list[Any] = []
    try:
        for reader, item in zip(readers, items, strict=True):
            found.append(reader(item))
    except MalformedError as error:
        raise error.within(f"[{len(found)}]") from None
    return tuple(found)


def _mapping(reader: Reader) -> Reader:
    def read_mapping(value: Any) -> Any:
        if not isinstance(value, dict) or len(value) > MOST_ITEMS:
            raise _wrong(value, f"use an object of at most {MOST_ITEMS:,} keys")
        return {_text(key): reader(item) for key, item in value.items()}

    return read_mapping


def _either(kinds: tuple[Any, ...], signed: bool) -> Reader:
    """Null, or the first type that takes the value."""
    readers = [_reader(kind, signed) for kind in kinds if kind is not type(None)]

    def read_either(value: Any) -> Any:
        if value is None and len(readers) < len(kinds):
            return None
        for reader in readers[:-1]:
            try:
                return reader(value)
            except MalformedError:
                continue
        return readers[-1](value)

    return read_either


def _one_of(words: tuple[Any, ...]) -> Reader:
    def read_word(value: Any) -> Any:
        if not isinstance(value, str) or value not in words:
            raise _wrong(value, f"use one of {', '.join(words)}")
        return value

    return read_word


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= BIGGEST:
        raise _wrong(value, f"use a whole number from 0 to {BIGGEST}")
    return value


def _signed(value: Any) -> int:
    if type(value) is not int or not -BIGGEST <= value <= BIGGEST:
        raise _wrong(value, f"use a whole number from {-BIGGEST} to {BIGGEST}")
    return value


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value) or abs(value) > BIGGEST:
        raise _wrong(value, "use a finite number")
    return float(value)


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > LONGEST_TEXT:
        raise _wrong(value, f"use a text of at most {LONGEST_TEXT:,} characters")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _wrong(value, "use a text without lone surrogates") from None
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _wrong(value, "use true or false")
    return value
