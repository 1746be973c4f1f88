"""`%yaie attach`, and `%yaie load --detached`: engines that outlive the kernel."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from yaie_magic.options import UsageProblem, option
from yaie_magic.session import DEFAULT_NAME, Opened, session
from yaie_magic.terminal import printable

from .announce import Announcer, leaving
from .entry import FORCE, Call, Subcommand

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from yaie_engine import EngineConfig
    from yaie_magic.detached.record import EngineRecord
    from yaie_magic.loading import Progress

DETACHED = option(
    "detached", "in a process of its own, which outlives the kernel: %yaie attach finds it again", kind="flag"
)
IDLE_TIMEOUT = option(
    "idle_timeout",
    "with --detached: seconds without a request after which the engine ends by itself, 0: never [default: 3600]",
    kind="float",
    metavar="SECONDS",
)


def load_detached(call: Call, config: EngineConfig) -> None:
    """Start an engine in a process of its own; attach to the one that runs under the name with the same settings.

    Raises:
        UsageProblem: one with other settings runs there, and `--force` is not given.
    """
    from yaie_magic.detached import attachment, registry
    from yaie_magic.detached.record import DEFAULT_IDLE_S, check_name

    name, force = check_name(call.given.get("as", DEFAULT_NAME)), call.given.get("force", False)
    idle, config = _idle_timeout(call), attachment.resolved(config)
    found = registry.find(name)
    if found is not None and attachment.same(found.record, config, idle):
        _attach_to(call, found.record)
        return
    if found is not None and not force:
        raise UsageProblem(
            f"a detached engine called {name} runs already with other settings ({found.record.model}); "
            f"%yaie attach {name} uses it, --as NAME starts another, --force ends it first"
        )

    def launch(report: Progress | None, make_room: Callable[[], None]) -> Opened:
        if found is not None:
            attachment.finish(found.record)
        return attachment.start(name, config, DEFAULT_IDLE_S if idle is None else idle, report, make_room)

    say = Announcer(call)
    left = leaving(name, ends=found is not None)
    with say.failing(config.model, name):
        cancelled = session.load(config, name, force, say.progress, launch)
    say.loaded(session.get(name), cancelled, left)


def _idle_timeout(call: Call) -> float | None:
    """The seconds that were asked for, or None."""
    from yaie_magic.detached.record import LONGEST_IDLE_S

    given = call.given.get("idle_timeout")
    if given is None:
        return None
    if not isinstance(given, float) or not math.isfinite(given) or not 0 <= given <= LONGEST_IDLE_S:
        raise UsageProblem(f"--idle-timeout {given}: seconds from 0 (never) to {LONGEST_IDLE_S:,.0f}")
    return given


def _attach(call: Call) -> None:
    from yaie_magic.detached import registry

    listing = registry.look()
    for note in listing.notes:
        print(f"{printable(note)}.")
    _attach_to(call, registry.choose(listing, call.given.get("name"), "%yaie attach").record)


def _attach_to(call: Call, record: EngineRecord) -> None:
    """Use a running engine under its name."""
    from yaie_magic.detached import attachment
    from yaie_magic.detached.attach import attach

    name = record.name
    held = session.engines.get(name)
    if held is not None and held.alive and held.elsewhere and held.elsewhere.where == attachment.where(record):
        session.current = name
        print(f"{held.model} is attached already; it is the current engine.")
        return
    session.refuse_running(name, call.given.get("force", False))
    say = Announcer(call)
    left = leaving(name)
    del held
    with say.failing(record.model, name):
        llm = attach(record, say.progress)
    try:
        engine, elsewhere = attachment.opened(record, llm)
        config, force = attachment.config_of(record), call.given.get("force", False)
        cancelled = session.adopt(name, config, engine, llm.model, force, elsewhere)
    except BaseException:
        llm.close()
        raise
    say.loaded(session.get(name), cancelled, left, what="attached")


def _names() -> Iterable[str]:
    from yaie_magic.detached import registry

    return list(registry.look().engines)


SUBCOMMANDS = (
    Subcommand(
        "attach",
        "use a detached engine again, warm: after a restart of the kernel, or from another one",
        _attach,
        lambda: (FORCE,),
        (("name", "?", "the engine [default: the only one that runs]"),),
        _names,
    ),
)
