"""`%yaie load | unload | restart`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from yaie_magic.options import Option, UsageProblem, engine_options, option
from yaie_magic.session import DEFAULT_NAME, session

from .announce import Announcer, and_cancelled, leaving
from .attach import DETACHED, IDLE_TIMEOUT, load_detached
from .entry import FORCE, Call, Subcommand

AS = option("as", "keep the engine under this name, beside the others [default: default]", metavar="NAME")
ALL = option("all", "every engine", kind="flag")
LONGEST_NAME = 64


def _load_options() -> tuple[Option, ...]:
    return (AS, DETACHED, IDLE_TIMEOUT, FORCE, *engine_options())


def engine_name(given: dict[str, Any]) -> str:
    """The name after `--as`.

    Raises:
        UsageProblem: it is one that could not be shown in a line.
    """
    name: str = given.get("as", DEFAULT_NAME)
    if not name.isprintable() or not 0 < len(name) <= LONGEST_NAME:
        raise UsageProblem(
            f"--as {name[:LONGEST_NAME]!r}: a name has 1 to {LONGEST_NAME} characters, all of which can be printed"
        )
    return name


def _load(call: Call) -> None:
    from yaie_magic.settings import engine_settings

    names = {entry.name for entry in engine_options()} | {"model"}
    config = engine_settings(None, {name: value for name, value in call.given.items() if name in names})
    if call.given.get("detached"):
        load_detached(call, config)
        return
    if "idle_timeout" in call.given:
        raise UsageProblem("--idle-timeout is for --detached: an engine of this kernel lives as long as the kernel")
    name = engine_name(call.given)
    if session.same(config, name):
        session.current = name
        asleep = session.get(name).llm.state == "asleep"
        todo = "it sleeps, and %yaie wake wakes it" if asleep else "nothing to do"
        print(f"{session.get(name).model} is loaded already with these settings; {todo}.")
        return
    say = Announcer(call)
    left = leaving(name)
    with say.failing(config.model, name):
        cancelled = session.load(config, name, call.given.get("force", False), say.progress)
    say.loaded(session.get(name), cancelled, left)


def _restart(call: Call) -> None:
    say = Announcer(call)
    name = call.given.get("name") or session.current
    lost = session.lost.get(name or "")
    model = lost.model if lost else session.get(name).model
    with say.failing(model, name or DEFAULT_NAME):
        engine, cancelled = session.restart(name, call.given.get("force", False), say.progress)
    if engine.elsewhere is None or engine.elsewhere.where.startswith("detached"):
        say.loaded(engine, cancelled)
    else:
        print(f"{engine.model} is connected again{and_cancelled(cancelled)}.")


def _unload(call: Call) -> None:
    force = call.given.get("force", False)
    every = call.given.get("all")
    wanted = call.given.get("name") or session.current
    lost = [found for name in list(session.lost) if (every or name == wanted) and (found := session.forget(name))]
    for memory in lost:
        print(f"{memory.model} is not loaded any more; it is forgotten now.")
    names = list(session.engines) if every else [] if lost else [session.get(wanted).name]
    if not names and not lost:
        raise UsageProblem("no engine is loaded")
    for name in names:
        model, elsewhere = session.get(name).model, session.get(name).elsewhere
        cancelled = session.unload(name, force)
        parting = elsewhere.parting if elsewhere else "unloaded"
        now = f"; the current engine is {session.current}" if session.current and not every else ""
        which = f" ({name})" if len(names) > 1 else ""
        print(f"{model}{which} {parting}{and_cancelled(cancelled)}{now}.")


def _models() -> Iterable[str]:
    from yaie_magic.catalog import models_here

    return [entry.name for entry in models_here()]


def _names() -> Iterable[str]:
    return list(session.engines)


SUBCOMMANDS = (
    Subcommand(
        "load",
        "load a model: a bundled one, a local folder, a Hub id or a .gguf file",
        _load,
        _load_options,
        (("model", "?", "the model [default: tiny]"),),
        _models,
    ),
    Subcommand(
        "unload",
        "close an engine and free its memory",
        _unload,
        lambda: (ALL, FORCE),
        (("name", "?", "the engine [default: the current one]"),),
        _names,
    ),
    Subcommand(
        "restart",
        "load the same model again with the same settings; chats are kept, the cache is empty",
        _restart,
        lambda: (FORCE,),
        (("name", "?", "the engine [default: the current one]"),),
        _names,
    ),
)
