"""What a part of a document must be. A check takes where the value stands and the value, and refuses it by raising."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

from yaie_engine.errors import RequestError

MAX_TEXT = 2000
_BIG = 2**40
Check = Callable[[str, Any], Any]


class RecordingError(RequestError):
    """A document is no recording; the text names the first thing that is wrong."""


def wrong(where: str, value: Any, wanted: str) -> RecordingError:
    shown = repr(value)
    return RecordingError(f"{where} is {shown if len(shown) <= 60 else shown[:57] + '...'}: {wanted}")


def whole(least: int = 0, most: int = _BIG) -> Check:
    """An integer in a range."""

    def check(where: str, value: Any) -> Any:
        if type(value) is not int or not least <= value <= most:
            raise wrong(where, value, f"use a whole number from {least} to {most}")
        return value

    return check


def number(where: str, value: Any) -> Any:
    """A finite number that is not negative."""
    if type(value) not in (int, float) or not math.isfinite(value) or not 0 <= value <= _BIG:
        raise wrong(where, value, "use a number that is not negative")
    return value


def text(where: str, value: Any) -> Any:
    """A string of bounded length that can be written as UTF-8."""
    if not isinstance(value, str) or len(value) > MAX_TEXT:
        raise wrong(where, value, f"use a text of at most {MAX_TEXT} characters")
    if not value.isascii() and sound(value) != value:
        raise wrong(where, value, "use a text without lone surrogates")
    return value


def sound(value: str) -> str:
    """The text, in which lone surrogates are escaped: they are no characters, and UTF-8 has no bytes for them."""
    return value.encode("utf-8", "backslashreplace").decode()


def one_of(*words: str) -> Check:
    """One of some words."""

    def check(where: str, value: Any) -> Any:
        if not isinstance(value, str) or value not in words:
            raise wrong(where, value, f"use one of {', '.join(words)}")
        return value

    return check


def maybe(check: Check) -> Check:
    """Null, or what `check` takes."""
    return lambda where, value: None if value is None else check(where, value)


def listed(check: Check) -> Check:
    """A list of things that `check` takes."""

    def check_all(where: str, value: Any) -> Any:
        if not isinstance(value, list):
            raise wrong(where, value, "use a list")
        _each([check] * len(value), where, value)
        return value

    return check_all


def row(*checks: Check) -> Check:
    """A list of exactly these things."""

    def check_row(where: str, value: Any) -> Any:
        if not isinstance(value, list) or len(value) != len(checks):
            raise wrong(where, value, f"use a list of {len(checks)}")
        _each(checks, where, value)
        return value

    return check_row


def _each(checks: Sequence[Check], where: str, items: list[Any]) -> None:
    """One check for each item. Places are put into words only once something is wrong: files have millions of items."""
    try:
        for check, item in zip(checks, items, strict=True):
            check(where, item)
    except RecordingError:
        for place, (check, item) in enumerate(zip(checks, items, strict=True)):
            check(f"{where}[{place}]", item)
        raise


def fields(where: str, value: Any, checks: dict[str, Check], optional: Collection[str] = ()) -> Any:
    """An object with exactly these keys, of which some may be missing."""
    if not isinstance(value, dict):
        raise wrong(where or "the document", value, "use an object")
    for key in value.keys() - checks.keys():
        raise RecordingError(f"{where or 'the document'} has a key {key[:40]!r} that recordings do not have")
    for key in checks:
        if key in value:
            checks[key](f"{where}.{key}" if where else key, value[key])
        elif key not in optional:
            raise RecordingError(f"{where or 'the document'} has no {key!r}")
    return value


def flag(where: str, value: Any) -> None:
    """True or false."""
    if not isinstance(value, bool):
        raise wrong(where, value, "use true or false")
