"""The engine that a command talks to: one of its own, or with `--url` one that runs elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from yaie_magic import logs
from yaie_magic.options import Group, UsageProblem, engine_options, option, sampling_options
from yaie_magic.server_key import KEY_VARIABLE, key_of, typed_key, with_key

if TYPE_CHECKING:
    from yaie_engine import SamplingParams
    from yaie_engine.serving import Engine
    from yaie_magic.remote import RemoteLLM
    from yaie_magic.remote.key import Key

ELSEWHERE = Group(
    "an engine that runs elsewhere",
    (
        option(
            "url",
            "ask the server at this address: `yaie serve`, or any other with the OpenAI API; --model then picks one of "
            "its models",
            metavar="URL",
        ),
        option("key_env", f"variable that holds the server's key [default: {KEY_VARIABLE}]", metavar="VARIABLE"),
    ),
)


@contextmanager
def open_engine(given: Mapping[str, Any]) -> Iterator[tuple[Engine, SamplingParams]]:
    """The engine that a line asks for, until the block ends, and the sampling parameters of its requests.

    Raises:
        UsageProblem: the line says how to build an engine and where another one runs.
        YaieError: a setting is wrong, the model does not load, or the server cannot be used.
    """
    from yaie_engine import SamplingParams
    from yaie_magic import loading, settings

    own = settings.chosen(given, engine_options(), without=("seed",))
    refuse_both(given, own)
    named = settings.chosen(given, (), also=("model",))
    config = settings.engine_settings(given.get("config"), {**own, **({} if "url" in given else named)})
    params = SamplingParams(**{**config.sampling_defaults, **settings.chosen(given, sampling_options())})
    if "url" in given:
        engine: Engine = connect_to(given["url"], key_of(given.get("key_env")), given.get("model"))
    else:
        logs.adopt_libraries()
        engine = loading.load(config)
    with closing(engine):
        yield engine, params


def connect_to(url: str, key: Key | None, model: str | None) -> RemoteLLM:
    """The engine behind an address. A key that is missing or wrong is asked for where somebody can type one."""
    from yaie_magic.remote import connect

    def ask(why: str) -> Key | None:
        return typed_key(why) if sys.stdin.isatty() else None

    return with_key(partial(connect, url, model=model), key, ask)


def refuse_both(given: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    """`--url` leaves nothing to say about an engine of our own, and nothing else has a key."""
    if "url" in given and own:
        flag = next(entry.long for entry in engine_options() if entry.name in own)
        raise UsageProblem(f"{flag} is for an engine that is loaded here; --url asks one that runs already")
    if "key_env" in given and "url" not in given:
        raise UsageProblem("--key-env is for --url")
