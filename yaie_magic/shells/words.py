"""What may be typed after `yaie`, as plain data: the same for every shell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from yaie_magic.cli import COMMANDS, GLOBAL_OPTIONS, command
from yaie_magic.options import REPEATED, Option
from yaie_magic.parser import OptionParser

Kind = Literal["nothing", "words", "file", "model"]
SHELLS = ("bash", "zsh", "fish")


@dataclass(frozen=True, slots=True)
class Value:
    """What can stand in one place. `words` are all there are (kind "words"), or those beside files (kind "model")."""

    kind: Kind = "nothing"
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Flag:
    """One option of a command; `value` is None where none follows."""

    long: tuple[str, ...]
    short: str | None
    text: str
    value: Value | None
    repeated: bool

    @property
    def spellings(self) -> tuple[str, ...]:
        """As typed."""
        return (*self.long, *([self.short] if self.short else []))


@dataclass(frozen=True, slots=True)
class CommandWords:
    """One command. `place` is what its words without a flag can be."""

    name: str
    text: str
    flags: tuple[Flag, ...]
    place: Value


def all_commands() -> tuple[CommandWords, ...]:
    """Every command with its options, those that are old names left out."""
    return tuple(_command(name, text, command(name).parser()) for name, text in COMMANDS.items())


def global_options() -> tuple[str, ...]:
    """What can stand in place of a command."""
    return GLOBAL_OPTIONS


def _command(name: str, text: str, parser: OptionParser) -> CommandWords:
    shown = (entry for entry in parser.options if not entry.hidden)
    flags = (*(_flag(entry) for entry in shown), Flag(("--help",), "-h", "show the options", None, False))
    place = next((_PLACES[place]() for place in parser.places if place in _PLACES), Value())
    return CommandWords(name, text, flags, place)


def _flag(entry: Option) -> Flag:
    short = next((flag for flag in entry.flags if not flag.startswith("--")), None)
    long = tuple(flag for flag in entry.all_flags if flag.startswith("--"))
    value = _value(entry) if entry.takes_value else None
    return Flag(long, short, entry.help.partition(" [")[0], value, entry.kind in REPEATED)


def _value(entry: Option) -> Value:
    if entry.choices:
        return Value("words", entry.choices)
    if entry.name in ("model", "tokenizer"):
        return _models()
    return Value("file") if entry.metavar == "FILE" else Value()


def _models() -> Value:
    from yaie_engine.models.bundled import bundled_names

    return Value("model", tuple(bundled_names()))


def _kernels() -> Value:
    from yaie_magic.lab.options import kernel_names

    return Value("words", tuple(sorted(kernel_names())))


_PLACES: dict[str, Callable[[], Value]] = {
    "model": _models,
    "command": lambda: Value("words", tuple(COMMANDS)),
    "shell": lambda: Value("words", SHELLS),
    "names": _kernels,
}
