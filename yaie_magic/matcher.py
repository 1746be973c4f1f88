"""Completion of subcommands, options, their choices, model and engine names, through one matcher."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from IPython.core.completer import CompletionContext, SimpleCompletion, context_matcher

from .options import Option, UsageProblem

_CELL = re.compile(r"%%(generate|chat|batch|kernel)\s")
_LINE = re.compile(r"\s*(?:[\w.]+\s*=\s*)?%yaie\s")


def complete(context: CompletionContext) -> Any:
    """What may follow in a line of ours; nothing elsewhere. Never raises into the completer."""
    line = context.text_until_cursor
    cell, command = _CELL.match(line), _LINE.match(line)
    if not command and not (cell and context.cursor_line == 0):
        return {"completions": []}
    head, _, word = line.rpartition(" ")
    try:
        found = _after_command(head, word) if command else _after_cell(cell[1] if cell else "", head, word)
    except UsageProblem:
        found = []
    return {
        "completions": [SimpleCompletion(text, type="keyword") for text in sorted(found) if text.startswith(word)],
        "suppress": True,
        "matched_fragment": word,
    }


yaie_matcher: Any = context_matcher(identifier="yaie_magic")(complete)


def _after_cell(cell: Any, head: str, word: str) -> Iterable[str]:
    if cell == "kernel":
        return _after_kernel(head, word)
    from .cell_options import cell_parser

    return _options(cell_parser(cell).options, head, word)


def _after_kernel(head: str, word: str) -> Iterable[str]:
    """A kernel's name first, then options; `--spec` takes the macros of that kernel."""
    from .lab.options import OPTIONS, kernel_names, labels_of

    name = next((each for each in head.split()[1:] if not each.startswith("-")), "")
    wanted = _value_wanted(OPTIONS, head)
    if wanted is not None and wanted.name == "spec":
        return labels_of(name)
    found = list(_options(OPTIONS, head, word))
    return found if name or wanted is not None or word.startswith("-") else [*found, *kernel_names()]


def _after_command(head: str, word: str) -> Iterable[str]:
    from .subcommands import SUBCOMMANDS, find

    words = head.partition("%yaie")[2].split()
    if not words:
        return SUBCOMMANDS
    subcommand = find(words[0])
    found = list(_options(subcommand.options(), head, word))
    if word.startswith("-") or _value_wanted(subcommand.options(), head) is not None:
        return found
    return [*found, *subcommand.words()]


def _options(options: Iterable[Option], head: str, word: str) -> Iterable[str]:
    """The values of the option before the cursor, or the flags that may come."""
    table = list(options)
    wanted = _value_wanted(table, head)
    if wanted is not None:
        return _values(wanted)
    return [flag for entry in table if not entry.hidden for flag in entry.all_flags if flag.startswith("--")] + [
        "--help"
    ]


def _value_wanted(options: Iterable[Option], head: str) -> Option | None:
    last = head.split()[-1:]
    return next((entry for entry in options if entry.takes_value and last and last[0] in entry.flags), None)


def _values(entry: Option) -> Iterable[str]:
    from .session import session

    if entry.name == "engine":
        return list(session.engines)
    if entry.name == "session":
        return [name for engine in session.engines.values() for name in engine.chats]
    return entry.choices
