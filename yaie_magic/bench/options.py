"""The options of `yaie bench serve`, and what they come to. Imports nothing heavy: completion reads them, too."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from yaie_magic.options import Group, Kind, Option, UsageProblem, option

GOALS = ("ttft", "tpot", "e2el")
_RANGES: dict[str, tuple[float, float, float]] = {
    "num_prompts": (100, 1, 100_000),
    "input_len": (128, 1, 1_000_000),
    "output_len": (64, 1, 1_000_000),
    "range_ratio": (0.0, 0, 1),
    "seed": (0, -(2**63), 2**63),
    "num_warmups": (1, 0, 1000),
    "max_concurrency": (1000, 1, 10_000),
    "request_deadline": (600.0, 0.001, 86_400),
}
"""Default, least, most."""


def _ranged(name: str, text: str, kind: Kind = "int", metavar: str = "N") -> Option:
    """The option for a number of `_RANGES`, whose help ends with its default."""
    return option(name, f"{text} [default: {_RANGES[name][0]:g}]", kind=kind, metavar=metavar)


LOAD = Group(
    "load on a server (yaie bench serve URL)",
    (
        option(
            "request_rate",
            "requests a second, a Poisson process [default: inf, all at once]",
            kind="float",
            metavar="X",
        ),
        _ranged("num_prompts", "requests"),
        _ranged("input_len", "length of prompts, in common words: about as many tokens"),
        _ranged("output_len", "max_tokens of requests"),
        _ranged("range_ratio", "lengths vary by this share in both directions", "float", "X"),
        _ranged("seed", "of arrivals, lengths and prompts"),
        _ranged("num_warmups", "requests before the start, which do not count"),
        _ranged("max_concurrency", "most requests in flight; waiting for that counts"),
        option(
            "goodput",
            "goals in ms: requests a second that meet all, of ttft, tpot, e2el",
            kind="texts",
            metavar="NAME:MS",
        ),
        _ranged("request_deadline", "seconds a request may take", "float", "S"),
        option("chat", "send messages to /v1/chat/completions", kind="flag"),
        option("ignore_eos", "ask the server to go on to the full length (vLLM, SGLang, yaie)", kind="flag"),
        option("details", "with --json: every request for itself, too", kind="flag"),
        option("key_env", "variable that holds the server's key [default: YAIE_API_KEY]", metavar="VARIABLE"),
    ),
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a line asks for. `goals` are milliseconds by name, `key_env` the variable a line named or None."""

    url: str
    model: str | None
    rate: float
    values: Mapping[str, float]
    goals: Mapping[str, float]
    chat: bool
    ignore_eos: bool
    details: bool
    key_env: str | None


def wanted(words: Sequence[str], given: Mapping[str, Any]) -> Wanted:
    """A line's words after `serve`, and its options.

    Raises:
        UsageProblem: a value is missing or wrong.
    """
    if len(words) != 1:
        raise UsageProblem("one address is needed: yaie bench serve http://127.0.0.1:8000")
    if given.get("details") and not given.get("json"):
        raise UsageProblem("--details is for --json")
    rate = given.get("request_rate", math.inf)
    if not isinstance(rate, float) or not rate > 0:
        raise UsageProblem(f"--request-rate {rate}: more than 0, or inf")
    return Wanted(
        url=words[0],
        model=given.get("model"),
        rate=rate,
        values={name: _in_range(name, given.get(name)) for name in _RANGES},
        goals=goals(given.get("goodput", [])),
        chat=given.get("chat", False),
        ignore_eos=given.get("ignore_eos", False),
        details=given.get("details", False),
        key_env=given.get("key_env"),
    )


def _in_range(name: str, value: Any) -> float:
    default, least, most = _RANGES[name]
    if value is None:
        return default
    if isinstance(value, str) or not least <= value <= most:
        raise UsageProblem(f"--{name.replace('_', '-')} {value}: from {least:g} to {most:g}")
    found: float = value
    return found


def goals(texts: Sequence[str]) -> dict[str, float]:
    """`ttft:500,tpot:50` as numbers.

    Raises:
        UsageProblem: a goal is unknown or no number.
    """
    found: dict[str, float] = {}
    for text in (part.strip() for each in texts for part in each.split(",")):
        name, _, number = text.partition(":")
        if name not in GOALS or not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,6})?", number) or not float(number):
            raise UsageProblem(f"--goodput {text}: NAME:MS is needed, such as ttft:500; names are {', '.join(GOALS)}")
        found[name] = float(number)
    return found


def joined_goals(words: Sequence[str]) -> list[str]:
    """`--goodput ttft:500 tpot:50`, as vLLM writes it, with commas."""
    found: list[str] = []
    for word in words:
        follows = len(found) > 1 and found[-2] == "--goodput" and ":" in word
        if follows and re.match(rf"({'|'.join(GOALS)}):", word):
            found[-1] += f",{word}"
        else:
            found.append(word)
    return found
