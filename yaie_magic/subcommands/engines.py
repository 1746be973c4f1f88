"""`%yaie load | unload | restart`."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from yaie_magic.display import INTERVAL, Handle, in_notebook
from yaie_magic.loading import Progress
from yaie_magic.options import Option, UsageProblem, engine_options, option
from yaie_magic.render import static_mode
from yaie_magic.session import DEFAULT_NAME, LoadedEngine, session

from .entry import FORCE, Call, Subcommand

AS = option("as", "keep the engine under this name, beside the others [default: default]", metavar="NAME")
ALL = option("all", "every engine", kind="flag")


def _load_options() -> tuple[Option, ...]:
    return (AS, FORCE, *engine_options())


def _load(call: Call) -> None:
    from yaie_magic.settings import engine_settings

    names = {entry.name for entry in engine_options()} | {"model"}
    config = engine_settings(None, {name: value for name, value in call.given.items() if name in names})
    name = call.given.get("as", DEFAULT_NAME)
    if session.same(config, name):
        session.current = name
        print(f"{session.get(name).model} is loaded already with these settings; nothing to do.")
        return
    say = _Announcer(call)
    chats = len(session.engines[name].chats) if name in session.engines else 0
    with say.failing(config.model, name):
        cancelled = session.load(config, name, call.given.get("force", False), say.progress)
    say.loaded(session.get(name), cancelled, chats)


def _restart(call: Call) -> None:
    say = _Announcer(call)
    name = call.given.get("name") or session.current
    lost = session.lost.get(name or "")
    model = lost.model if lost else session.get(name).model
    with say.failing(model, name or DEFAULT_NAME):
        engine, cancelled = session.restart(name, call.given.get("force", False), say.progress)
    if engine.reopen is None:
        say.loaded(engine, cancelled)
    else:
        print(f"{engine.model} is connected again{_and_cancelled(cancelled)}.")


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
        model, parting = session.get(name).model, session.get(name).parting
        cancelled = session.unload(name, force)
        now = f"; the current engine is {session.current}" if session.current else ""
        print(f"{model} {parting}{_and_cancelled(cancelled)}{now}.")


class _Announcer:
    """Says how far a load is, in one display that ends with the result; in a terminal only the result."""

    def __init__(self, call: Call) -> None:
        self._handle = Handle(call.shell) if in_notebook(call.shell) else None
        self._start = time.monotonic()
        self._said, self._at = "", 0.0

    @property
    def progress(self) -> Progress | None:
        """To be called by the loader; None where nothing can be replaced later."""
        return self._progress if self._handle else None

    def loaded(self, engine: LoadedEngine, cancelled: int, chats: int = 0) -> None:
        """One line on what runs now."""
        snapshot = engine.llm.snapshot()
        model, blocks = snapshot.model, snapshot.blocks
        took = "" if static_mode() else f" in {time.monotonic() - self._start:.1f} s"
        name = "" if engine.name == DEFAULT_NAME else f" as {engine.name}"
        ended = f"; {chats} chat {'session' if chats == 1 else 'sessions'} ended" if chats else ""
        self._say(
            f"{model.name} loaded{name}{took}: {model.dtype} on {model.device}, {model.tier} tier, "
            f"{blocks.total:,} blocks of {blocks.block_size} tokens{_and_cancelled(cancelled)}{ended}."
        )

    @contextmanager
    def failing(self, model: str, name: str) -> Iterator[None]:
        """Around the load: says what is there when it fails, also in place of how far it was."""
        try:
            yield
        except BaseException:
            if name in session.lost:
                self._say(f"{model} was not loaded. {session.lost[name].story}.")
            elif name in session.engines:
                self._say(f"{model} was not loaded; {session.engines[name].model} goes on.")
            elif self._said:
                self._say(f"{model} was not loaded.")
            raise

    def _progress(self, what: str, share: float | None) -> None:
        now = time.monotonic()
        if what != self._said or now - self._at >= INTERVAL:
            self._said, self._at = what, now
            self._say(f"loading: {what}" + ("" if share is None else f", {share:.0%}"))

    def _say(self, text: str) -> None:
        if self._handle is None:
            print(text)
        else:
            self._handle.update({"text/plain": text})


def _and_cancelled(count: int) -> str:
    return f"; {count} running {'request' if count == 1 else 'requests'} cancelled" if count else ""


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
