"""The engines of this session by name. They live here, in a module that `%reload_ext` does not touch."""

from __future__ import annotations

import atexit
import gc
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import TYPE_CHECKING

from . import loading
from .options import UsageProblem

if TYPE_CHECKING:
    from yaie_engine import EngineConfig
    from yaie_engine.serving import Engine

    from .chat import Chat

DEFAULT_NAME = "default"


@dataclass
class LoadedEngine:
    """An engine under its name, with the chats that were held with it.

    One that runs elsewhere is had again by `reopen`; `parting` is what it is after an unload.
    """

    name: str
    config: EngineConfig
    llm: Engine
    model: str
    chats: dict[str, Chat] = field(default_factory=dict)
    reopen: Callable[[], Engine] | None = None
    parting: str = "unloaded"

    @property
    def alive(self) -> bool:
        """Whether it still serves requests."""
        return self.llm.state not in ("failed", "closed")

    @property
    def num_running(self) -> int:
        """Requests that wait or run."""
        return len(self.llm.running()) if self.alive else 0


@dataclass(frozen=True)
class LostEngine:
    """What is kept of an engine that made room for a load which then failed: all that `restart` needs."""

    name: str
    config: EngineConfig
    model: str
    chats: dict[str, Chat]
    reason: str

    @property
    def story(self) -> str:
        """What happened and what to do, in one line."""
        again = "%yaie restart" if self.name == DEFAULT_NAME else f"%yaie restart {self.name}"
        return f"{self.model} was unloaded for a load that did not succeed ({self.reason}); {again} loads it again"


class Session:
    """Named engines, one of them current. Used from the main thread. An engine whose replacement failed is in `lost`
    under its name, and stays current if it was."""

    def __init__(self, build: loading.Build = loading.build_llm) -> None:
        self.engines: dict[str, LoadedEngine] = {}
        self.lost: dict[str, LostEngine] = {}
        self.current: str | None = None
        self.build = build

    def get(self, name: str | None = None) -> LoadedEngine:
        """The engine of that name, or the current one.

        Raises:
            UsageProblem: there is none.
        """
        wanted = name or self.current
        if wanted is None:
            raise UsageProblem("no engine is loaded; run %yaie load MODEL (the bundled model is called tiny)")
        if wanted in self.lost:
            raise UsageProblem(self.lost[wanted].story)
        if wanted not in self.engines:
            from yaie_engine.validation import did_you_mean

            hint = did_you_mean(wanted, self.engines) or f"; there is {', '.join(self.engines) or 'none yet'}"
            raise UsageProblem(f"no engine is called {wanted!r}{hint}")
        return self.engines[wanted]

    def same(self, config: EngineConfig, name: str) -> bool:
        """Whether that engine runs already with exactly these settings."""
        found = self.engines.get(name)
        return found is not None and found.alive and found.config.model_dump() == config.model_dump()

    def load(
        self,
        config: EngineConfig,
        name: str = DEFAULT_NAME,
        force: bool = False,
        report: loading.Progress | None = None,
    ) -> int:
        """Load under a name, in place of what had it, and make it current. Says how many requests were cancelled.

        The old engine goes when the new model has passed every check and its weights are about to be read. If the load
        fails after that, `lost` keeps what `restart` needs.

        Raises:
            UsageProblem: the engine to replace has running work and `force` is not given.
            Interrupted, YaieError: the load did not succeed.
        """
        self._refuse_running(name, force)
        gone: list[LostEngine] = []
        cancelled = 0

        def make_room() -> None:
            nonlocal cancelled
            if name in self.engines:
                old = self.engines[name]
                memory = LostEngine(name, old.config, old.model, old.chats, "interrupted")
                del old
                cancelled = self.unload(name, force)
                gone.append(memory)

        try:
            llm = loading.load(config, self.build, report, make_room)
        except BaseException as error:
            if gone:
                reason = " ".join(str(error).split()) or type(error).__name__
                self.lost[name] = replace(gone[0], reason=reason)
                self.current = name
            raise
        make_room()  # a builder that reports no stages has not asked for it
        self.lost.pop(name, None)
        self.engines[name] = LoadedEngine(name, config, llm, llm.snapshot().model.name)
        self.current = name
        return cancelled

    def adopt(
        self,
        name: str,
        config: EngineConfig,
        llm: Engine,
        model: str,
        force: bool = False,
        reopen: Callable[[], Engine] | None = None,
        parting: str = "unloaded",
    ) -> int:
        """Put an engine that is there already under a name, in place of what had it, and make it current. Says how many
        requests were cancelled.

        Raises:
            UsageProblem: the engine to replace has running work and `force` is not given. `llm` stays as it is.
        """
        self._refuse_running(name, force)
        cancelled = self.unload(name, force) if name in self.engines else 0
        self.lost.pop(name, None)
        self.engines[name] = LoadedEngine(name, config, llm, model, reopen=reopen, parting=parting)
        self.current = name
        return cancelled

    def _refuse_running(self, name: str, force: bool) -> int:
        running = self.engines[name].num_running if name in self.engines else 0
        if running and not force:
            noun = "request is" if running == 1 else "requests are"
            raise UsageProblem(f"{running} {noun} running in engine {name!r}; wait, or --force cancels them")
        return running

    def unload(self, name: str, force: bool = False) -> int:
        """Close an engine and free its memory. Says how many requests were cancelled.

        Raises:
            UsageProblem: it has running work and `force` is not given.
        """
        engine = self.get(name)
        running = self._refuse_running(name, force)
        self._remove(engine)
        del engine
        _forget_tracebacks()
        gc.collect()
        return running

    def restart(
        self, name: str | None = None, force: bool = False, report: loading.Progress | None = None
    ) -> tuple[LoadedEngine, int]:
        """The same model and settings in a new engine; chats keep their history. Repeats one that failed, and opens one
        that runs elsewhere again."""
        wanted = name or self.current or ""
        old: LoadedEngine | LostEngine = self.lost[wanted] if wanted in self.lost else self.get(name)
        name, config, chats = old.name, old.config, old.chats
        if isinstance(old, LoadedEngine) and (reopen := old.reopen) is not None:
            model, parting = old.model, old.parting
            self._refuse_running(name, force)
            del old
            cancelled = self.adopt(name, config, reopen(), model, force, reopen, parting)
        else:
            del old
            cancelled = self.load(config, name, force, report)
        self.engines[name].chats = chats
        return self.engines[name], cancelled

    def forget(self, name: str) -> LostEngine | None:
        """Drop what is kept of a lost engine."""
        found = self.lost.pop(name, None)
        if found is not None and self.current == name:
            self.current = next(reversed(self.engines), None)
        return found

    def close_all(self) -> None:
        """Close every engine, cancelling what runs."""
        for engine in list(self.engines.values()):
            self._remove(engine)
        for name in list(self.lost):
            self.forget(name)

    def _remove(self, engine: LoadedEngine) -> None:
        self.engines.pop(engine.name, None)
        if self.current == engine.name:
            self.current = next(reversed(self.engines), None)
        engine.llm.close()


def _forget_tracebacks() -> None:
    """The last error, which `%debug` and `%tb` read, may hold frames of the engine that was just closed: drop those."""
    chain: list[BaseException | None] = [getattr(sys, "last_value", None)]
    seen: set[int] = set()
    while chain:
        error = chain.pop()
        if error is None or id(error) in seen:
            continue
        seen.add(id(error))
        chain += [error.__context__, error.__cause__]
        error.__traceback__ = _outside(error.__traceback__)


def _outside(trace: TracebackType | None) -> TracebackType | None:
    """A traceback up to where it enters our packages."""
    if trace is None or str(trace.tb_frame.f_globals.get("__name__", "")).startswith(("yaie_magic", "yaie_engine")):
        return None
    trace.tb_next = _outside(trace.tb_next)
    return trace


session = Session()
atexit.register(session.close_all)
