"""The engines of this session by name. They live here, in a module that `%reload_ext` does not touch."""

from __future__ import annotations

import atexit
import gc
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import TYPE_CHECKING, TypeAlias

from . import loading
from .options import UsageProblem

if TYPE_CHECKING:
    from yaie_engine import EngineConfig
    from yaie_engine.serving import Engine

    from .chat import Chat

DEFAULT_NAME = "default"
Opened: TypeAlias = "tuple[Engine, Elsewhere | None]"
Launch: TypeAlias = "Callable[[loading.Progress | None, Callable[[], None]], Opened]"
"""Opens an engine; calls the second argument when it needs the memory of the one it replaces."""


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """How an engine that does not run in this process is handled; closing it only drops the connection.

    `model` is its name, `where` it runs and `parting`, what it is after an unload, are for the reader. `again` opens it
    anew, `end` is what an unload does beyond closing it, `check` raises an EngineDeadError when it is known to be gone.
    """

    model: str
    where: str
    parting: str
    again: Callable[[loading.Progress | None], Opened]
    end: Callable[[], object]
    check: Callable[[], None] = lambda: None


@dataclass
class LoadedEngine:
    """An engine under its name, with the chats that were held with it."""

    name: str
    config: EngineConfig
    llm: Engine
    model: str
    chats: dict[str, Chat] = field(default_factory=dict)
    elsewhere: Elsewhere | None = None

    @property
    def alive(self) -> bool:
        """Whether it still serves requests."""
        return self.llm.state not in ("failed", "closed")

    @property
    def num_running(self) -> int:
        """Requests that wait or run; 0 when nobody answers."""
        from yaie_engine.errors import YaieError

        try:
            return len(self.llm.running()) if self.alive else 0
        except YaieError:
            return 0


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
        """Whether that engine runs in this process already with exactly these settings."""
        found = self.engines.get(name)
        if found is None or found.elsewhere is not None or not found.alive:
            return False
        return found.config.model_dump() == config.model_dump()

    def load(
        self,
        config: EngineConfig,
        name: str = DEFAULT_NAME,
        force: bool = False,
        report: loading.Progress | None = None,
        launch: Launch | None = None,
    ) -> int:
        """Load under a name, in place of what had it, and make it current. Says how many requests were cancelled.

        The old engine goes when the new model has passed every check and its weights are about to be read; one that
        takes no memory here, since it runs elsewhere, when the new one is there. If the load fails after that, `lost`
        keeps what `restart` needs.

        Args:
            launch: how the engine is opened, when not in this process.

        Raises:
            UsageProblem: the engine to replace has running work and `force` is not given.
            Interrupted, YaieError: the load did not succeed.
        """
        self.refuse_running(name, force)
        gone: list[LostEngine] = []
        cancelled = 0

        def make_room() -> None:
            nonlocal cancelled
            old = self.engines.get(name)
            if old is not None and old.elsewhere is None:
                memory = LostEngine(name, old.config, old.model, old.chats, "interrupted")
                del old
                cancelled = self._close(name, force)
                gone.append(memory)

        try:
            llm, elsewhere = (launch or self._build_here(config))(report, make_room)
        except BaseException as error:
            if gone:
                reason = " ".join(str(error).split()) or type(error).__name__
                self.lost[name] = replace(gone[0], reason=reason)
                self.current = name
            raise
        make_room()  # a builder that reports no stages has not asked for it
        model = elsewhere.model if elsewhere else llm.snapshot().model.name
        try:
            return cancelled + self.adopt(name, config, llm, model, force, elsewhere)
        except BaseException:  # what it replaces has been given work meanwhile
            if name not in self.engines or self.engines[name].llm is not llm:
                llm.close()
                if elsewhere is not None:
                    elsewhere.end()
            raise

    def _build_here(self, config: EngineConfig) -> Launch:
        """An engine of this process."""
        return lambda report, make_room: (loading.load(config, self.build, report, make_room), None)

    def adopt(
        self,
        name: str,
        config: EngineConfig,
        llm: Engine,
        model: str,
        force: bool = False,
        elsewhere: Elsewhere | None = None,
    ) -> int:
        """Put an engine that is there already under a name, in place of what had it, and make it current. Says how many
        requests were cancelled.

        Raises:
            UsageProblem: the engine to replace has running work and `force` is not given. `llm` stays as it is.
        """
        cancelled = self._close(name, force) if name in self.engines else 0
        self.lost.pop(name, None)
        self.engines[name] = LoadedEngine(name, config, llm, model, elsewhere=elsewhere)
        self.current = name
        return cancelled

    def refuse_running(self, name: str, force: bool) -> int:
        """How many requests an engine is busy with.

        Raises:
            UsageProblem: it is busy, and `force` is not given.
        """
        running = self.engines[name].num_running if name in self.engines else 0
        if running and not force:
            noun = "request is" if running == 1 else "requests are"
            raise UsageProblem(f"{running} {noun} running in engine {name!r}; wait, or --force cancels them")
        return running

    def unload(self, name: str, force: bool = False) -> int:
        """Close an engine and free its memory; a detached one ends. Says how many requests were cancelled.

        Raises:
            UsageProblem: it has running work and `force` is not given.
        """
        elsewhere = self.get(name).elsewhere
        cancelled = self._close(name, force)
        if elsewhere is not None:
            elsewhere.end()
        return cancelled

    def _close(self, name: str, force: bool) -> int:
        """Let go of an engine; one that runs elsewhere goes on."""
        running = self.refuse_running(name, force)
        self._remove(self.get(name))
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
        elsewhere = old.elsewhere if isinstance(old, LoadedEngine) else None
        del old
        launch: Launch | None = None
        if elsewhere is not None:
            again = elsewhere.again
            launch = lambda report, _: again(report)  # noqa: E731
        cancelled = self.load(config, name, force, report, launch)
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
