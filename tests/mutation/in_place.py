"""A mistake planted in a module that is loaded already: the body of one function becomes another."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from types import CodeType, FunctionType

from tests.mutation.mutant import Mutant


def replacements(mutant: Mutant) -> list[tuple[FunctionType, CodeType]]:
    """The functions that differ, each with its mistaken body; none where the mistake is not in a body.

    Such are constants and defaults: others have taken their values when they were imported.
    """
    path = f"<mutant of {mutant.module}>"
    before, after = (compile(text, path, "exec") for text in (mutant.text, mutant.source))
    live = {(each.__name__, each.__code__.co_firstlineno): each for each in _functions(mutant.module)}
    found = []
    for old, new in zip(_bodies(before), _bodies(after), strict=True):
        if old != new:
            function = live.get((old.co_name, old.co_firstlineno))
            if function is None or function.__code__.co_freevars != new.co_freevars:
                return []
            found.append((function, new))
    return found


def _bodies(code: CodeType) -> Iterator[CodeType]:
    """The functions of a module and of its classes, in the order of the text."""
    for each in code.co_consts:
        if isinstance(each, CodeType):
            if each.co_flags & inspect.CO_OPTIMIZED:
                yield each
            else:
                yield from _bodies(each)


def _functions(module: str) -> Iterator[FunctionType]:
    names = vars(importlib.import_module(f"yaie_engine.{module}"))
    own = [each for each in names.values() if getattr(each, "__module__", "") == f"yaie_engine.{module}"]
    for each in own:
        for value in [each, *(vars(each).values() if isinstance(each, type) else ())]:
            parts = (value.fget, value.fset) if isinstance(value, property) else (getattr(value, "__func__", value),)
            yield from (part for part in parts if isinstance(part, FunctionType))
