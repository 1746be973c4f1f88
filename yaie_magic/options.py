"""The one table of options: made from the fields of EngineConfig and SamplingParams, read by magics, command line and
completion. Imports neither IPython nor, before an option is asked for, pydantic."""

from __future__ import annotations

import functools
import json
import re
import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from yaie_engine.errors import YaieError

Kind = Literal["text", "int", "float", "texts", "ints", "bias", "json", "switch", "flag", "choice"]
METAVARS: dict[Kind, str] = {
    "text": "TEXT",
    "int": "N",
    "float": "X",
    "texts": "TEXT",
    "ints": "ID",
    "bias": "ID=VALUE",
    "json": "JSON",
}
SHORT = {"max_tokens": "-m", "n": "-n", "temperature": "-t"}
SWITCHES: tuple[Kind, ...] = ("switch", "flag")
REPEATED: tuple[Kind, ...] = ("texts", "ints", "bias")


class UsageProblem(YaieError, ValueError):
    """A line of options that cannot be understood; the text is one line that names the way out."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option. `name` is the field it sets; a "switch" has a `--no-` twin, a "flag" has none."""

    name: str
    help: str
    kind: Kind = "text"
    flags: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    metavar: str = ""
    optional: bool = False
    hidden: bool = False

    @property
    def takes_value(self) -> bool:
        """Whether a value follows the flag."""
        return self.kind not in SWITCHES

    @property
    def long(self) -> str:
        """The form to name in messages."""
        return next((flag for flag in self.flags if flag.startswith("--")), self.flags[0])

    @property
    def all_flags(self) -> tuple[str, ...]:
        """Every spelling, the `--no-` twin of a switch included."""
        return (*self.flags, f"--no-{self.long[2:]}") if self.kind == "switch" else self.flags


@dataclass(frozen=True, slots=True)
class Group:
    """Options that a help text shows together under a title."""

    title: str
    options: tuple[Option, ...]


def option(name: str, help: str, *short: str, **details: Any) -> Option:
    """An Option whose long flag follows from its name."""
    return Option(name, help, flags=(*short, f"--{name.replace('_', '-')}"), **details)


@functools.cache
def engine_options() -> tuple[Option, ...]:
    """Every EngineConfig field but the model, which is named without a flag; old names of Mini-YAIE are hidden."""
    from yaie_engine.config import EngineConfig
    from yaie_engine.old_names import RENAMED, SAMPLING_DEFAULTS, WITHOUT_EFFECT

    current = [_from_field(EngineConfig, name) for name in EngineConfig.model_fields if name != "model"]
    old = [*RENAMED, *SAMPLING_DEFAULTS, *WITHOUT_EFFECT, "swap_space", "tensor_parallel_size"]
    return (*current, *(option(name, "", kind="json", hidden=True) for name in old))


@functools.cache
def sampling_options() -> tuple[Option, ...]:
    """Every SamplingParams field."""
    from yaie_engine.params import SamplingParams

    return tuple(_from_field(SamplingParams, name) for name in SamplingParams.model_fields)


@functools.cache
def server_options() -> tuple[Option, ...]:
    """Every ServerConfig field but the key: every user of the machine can read a command line."""
    from .server.config import ServerConfig

    return tuple(_from_field(ServerConfig, name) for name in ServerConfig.model_fields if name != "api_key")


def _from_field(model: type[Any], name: str) -> Option:
    from yaie_engine.validation import allowed_range

    field = model.model_fields[name]
    inner, optional = _without_none(field.annotation)
    kind = _kind(inner)
    notes = [_in_words(allowed_range(model, name)), "repeat for several" if kind in REPEATED else ""]
    if field.default is not None and kind not in REPEATED and field.default != {}:
        default = ("on" if field.default else "off") if kind == "switch" else field.default
        notes.append(f"default: {default}")
    text = field.description + "".join(f" [{note}]" for note in notes if note)
    short = (SHORT[name],) if name in SHORT else ()
    choices = get_args(inner) if kind == "choice" else ()
    return option(name, text, *short, kind=kind, choices=choices, metavar=METAVARS.get(kind, ""), optional=optional)


def _in_words(bounds: str) -> str:
    """`>= 1 and <= 128` as `1 to 128`; bounds that only keep a number in 32 or 64 bits are left out."""
    pairs = [part.split() for part in bounds.split(" and ") if part]
    told = {sign: number for sign, number in pairs if abs(float(number)) < 2**31 - 1}
    if set(told) == {">=", "<="}:
        return f"{told['>=']} to {told['<=']}"
    words = {">=": "at least", ">": "over", "<=": "at most", "<": "below"}
    return ", ".join(f"{words[sign]} {number}" for sign, number in told.items())


def _without_none(annotation: Any) -> tuple[Any, bool]:
    """The type behind `X | None` and `Annotated[X, ...]`, and whether None is allowed."""
    if get_origin(annotation) in (Union, types.UnionType):
        rest = [part for part in get_args(annotation) if part is not type(None)]
        return _without_none(rest[0])[0], True
    if get_origin(annotation) is Annotated:
        return _without_none(get_args(annotation)[0])
    return annotation, False


def _kind(annotation: Any) -> Kind:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return "choice"
    if origin is list:
        return "ints" if _without_none(arguments[0])[0] is int else "texts"
    if origin is dict:
        return "bias" if _without_none(arguments[0])[0] is int else "json"
    known: dict[Any, Kind] = {bool: "switch", int: "int", float: "float", str: "text"}
    return known.get(annotation, "json")


def convert(entry: Option, raw: Any) -> Any:
    """A typed value as the field wants it. Numbers that do not parse stay text: the field's own check names the range.

    Raises:
        UsageProblem: a choice, JSON text or ID=VALUE pair is wrong.
    """
    if not entry.takes_value:
        return bool(raw)
    if entry.kind == "texts":
        return [decode_escapes(text) for text in raw]
    if entry.kind == "ints":
        return [_number(part.strip(), int) for text in raw for part in text.split(",") if part.strip()]
    if entry.kind == "bias":
        return {key: value for text in raw for key, value in _bias(entry, text).items()}
    if entry.kind == "choice":
        return _choice(entry, raw)
    if entry.kind in ("int", "float"):
        if entry.optional and raw.lower() == "none":
            return None
        return _number(raw, int if entry.kind == "int" else float)
    return _json(entry, raw) if entry.kind == "json" else raw


def convert_all(given: Mapping[str, Any], options: tuple[Option, ...]) -> dict[str, Any]:
    """`convert` for each option that was given."""
    return {entry.name: convert(entry, given[entry.name]) for entry in options if entry.name in given}


def decode_escapes(text: str) -> str:
    r"""`\n`, `\t`, `\r` and `\\` written as two characters become the one they mean."""
    meant = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\"}
    return re.sub(r"\\([ntr\\])", lambda found: meant[found[1]], text)


def _number(raw: str, kind: type[int] | type[float]) -> Any:
    try:
        return kind(raw)
    except ValueError:
        return raw


def _choice(entry: Option, raw: str) -> str:
    from yaie_engine.validation import did_you_mean

    if raw not in entry.choices:
        hint = did_you_mean(raw, entry.choices)
        raise UsageProblem(f"{entry.long} {raw!r} is not one of {', '.join(entry.choices)}{hint}")
    return raw


def _json(entry: Option, raw: str) -> Any:
    """JSON where it looks like JSON, else the text itself (an old option takes numbers and words alike)."""
    try:
        return json.loads(raw)
    except (ValueError, RecursionError) as error:
        if raw.lstrip()[:1] in ("{", "["):
            raise UsageProblem(f"{entry.long} {raw[:80]!r} is not valid JSON: {error}") from None
        return raw


def _bias(entry: Option, raw: str) -> dict[Any, Any]:
    if raw.lstrip().startswith("{"):
        found: dict[Any, Any] = _json(entry, raw)
        return {_number(key, int): value for key, value in found.items()}
    pairs = [part.partition("=") for part in raw.split(",")]
    if not all(middle and value.strip() for _, middle, value in pairs):
        raise UsageProblem(
            f"{entry.long} {raw!r}: write ID=VALUE, for instance 42=-100, or JSON like '{{\"42\": -100}}'"
        )
    return {_number(key.strip(), int): _number(value.strip(), float) for key, _, value in pairs}
