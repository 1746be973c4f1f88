"""An argument parser over the option table: a line in, the given options out, each mistake a one-line UsageProblem."""

from __future__ import annotations

import argparse
import re
import shlex
import textwrap
from collections.abc import Sequence
from itertools import takewhile
from typing import Any, NoReturn

from .options import REPEATED, Group, Option, UsageProblem, convert_all

HELP_FLAGS = ("-h", "--help")
_HELP = "help flag"
WIDTH = 100
"""Columns of a help text."""
LONGEST_LINE = 100_000
"""Characters of a magic's line: `shlex` takes time that grows with the square of a word's length."""
MOST_WORDS = 2_000
"""Words of a magic's line: `argparse` takes time that grows with the square of their number."""
_TAKEN_OR_ESCAPE = re.compile(r"""(\\[^ntr]|"(?:[^"\\]|\\.)*(?:"|\\?\Z)|'[^']*(?:'|\Z))|\\(?=[ntr])""", re.DOTALL)
"""What a shell takes as one: an escaped character, a quoted text (also one that nobody closes); or a bare `\\n`."""


def split_line(line: str) -> list[str]:
    r"""The words of a magic's line, quotes removed as in a shell; a bare `\n` keeps its backslash.

    Raises:
        UsageProblem: a quote is open, or the line is longer than LONGEST_LINE or has more than MOST_WORDS.
    """
    if len(line) > LONGEST_LINE:
        raise UsageProblem(
            f"a line of {len(line):,} characters; at most {LONGEST_LINE:,} are allowed: put a long text into the cell"
        )
    try:
        words = shlex.split(_TAKEN_OR_ESCAPE.sub(lambda found: found[1] or r"\\", line))
    except ValueError as error:
        raise UsageProblem(f"{str(error).lower()} in {_short(line.strip())!r}: close the quote") from None
    if len(words) > MOST_WORDS:
        raise UsageProblem(f"a line of {len(words):,} words; at most {MOST_WORDS:,} are allowed")
    return words


def _short(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:200]}..."


def add_options(parser: argparse._ActionsContainer, options: Sequence[Option]) -> None:
    """Add the table's options to any argparse parser or group; values stay text until `convert_all`."""
    for entry in options:
        details: dict[str, Any] = {
            "dest": entry.name,
            "help": entry.help.replace("%", "%%"),
            "default": argparse.SUPPRESS,
        }
        if entry.hidden:
            details["help"] = argparse.SUPPRESS
        if entry.kind == "switch":
            details["action"] = argparse.BooleanOptionalAction
        elif entry.kind == "flag":
            details["action"] = "store_true"
        else:
            details["metavar"] = "|".join(entry.choices) or entry.metavar or None
            details["action"] = "append" if entry.kind in REPEATED else "store"
        parser.add_argument(*entry.flags, **details)


def _place(name: str, count: str) -> str:
    """A word of the usage line."""
    return {"?": f"[{name.upper()}]", "*": f"[{name.upper()} ...]"}.get(count, name.upper())


class OptionParser(argparse.ArgumentParser):
    """argparse without exits and abbreviations. `places` are the words without a flag: (name, how many, help). Options
    in `groups` are shown under their titles, `epilog` as it stands."""

    def __init__(
        self,
        prog: str,
        options: Sequence[Option],
        description: str = "",
        places: Sequence[tuple[str, str, str]] = (),
        groups: Sequence[Group] = (),
        epilog: str | None = None,
    ) -> None:
        super().__init__(
            prog=prog,
            usage=" ".join([prog.replace("%", "%%"), *(_place(name, count) for name, count, _ in places), "[options]"]),
            description=textwrap.fill(description, WIDTH),
            epilog=epilog,
            add_help=False,
            allow_abbrev=False,
            formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, max_help_position=34, width=WIDTH),
        )
        self._positionals.title = "words"
        self.options = (*options, *(entry for group in groups for entry in group.options))
        self.places = tuple(name for name, _, _ in places)
        for name, count, text in places:
            self.add_argument(name, nargs=count or None, help=text, metavar=name.upper(), default=argparse.SUPPRESS)
        add_options(self, options)
        help_text = "show this text"
        self.add_argument(*HELP_FLAGS, action="store_true", dest=_HELP, default=argparse.SUPPRESS, help=help_text)
        for group in groups:
            add_options(self.add_argument_group(group.title), group.options)

    def parse(self, words: Sequence[str]) -> dict[str, Any]:
        """Only what was given, converted.

        Raises:
            UsageProblem: an option is unknown or lacks its value, or a word has no place.
        """
        joined = self._joined(words)
        if self.wants_help(list(takewhile(lambda word: word != "--", joined))):
            self.print_help()
            self.exit()
        given, rest = self.parse_known_args(joined)
        if _HELP in given:  # letters run together, as in `-nh`
            raise UsageProblem("-h stands alone: write it as a word of its own")
        if rest:
            self._unknown(rest[0].split("=")[0] if rest[0].startswith("-") else rest[0])
        found = vars(given)
        return {**{name: found[name] for name in self.places if name in found}, **convert_all(found, self.options)}

    def wants_help(self, words: Sequence[str]) -> bool:
        """Whether the line asks for the help text."""
        return any(word in HELP_FLAGS for word in words)

    def error(self, message: str) -> NoReturn:
        """argparse calls this where it would print and exit."""
        raise UsageProblem(message.removeprefix("argument "))

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        """argparse of Python 3.11 drops a value that is `--`, even in `--stop=--`."""
        if action.option_strings and arg_strings == ["--"]:
            return "--"
        return super()._get_values(action, arg_strings)

    def _joined(self, words: Sequence[str]) -> list[str]:
        """`--stop ---` as `--stop=---`: argparse alone would take a value that begins with a dash for an option."""
        taking = {flag for entry in self.options if entry.takes_value for flag in entry.flags}
        known = {flag for entry in self.options for flag in entry.all_flags}
        out: list[str] = []
        rest = list(words)
        while rest:
            word = rest.pop(0)
            if word in taking and rest and rest[0] not in known:
                word = f"{word}={rest.pop(0)}"
            out.append(word)
        return out

    def _unknown(self, word: str) -> NoReturn:
        from yaie_engine.validation import did_you_mean

        if not word.startswith("-"):
            raise UsageProblem(f"unexpected word {_short(word)!r}; quote a value that contains spaces")
        flags = [flag for entry in self.options if not entry.hidden for flag in entry.all_flags]
        hint = did_you_mean(word, flags) or "; --help lists the options"
        raise UsageProblem(f"unknown option {_short(word)!r}{hint}")
