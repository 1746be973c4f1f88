"""`%yaie sleep | wake`: an engine gives its memory back for a while; session, chats and history stay."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from yaie_magic.aside import aside
from yaie_magic.options import UsageProblem, option
from yaie_magic.render import static_mode
from yaie_magic.session import LoadedEngine, session

from .entry import FORCE, Call, Subcommand

if TYPE_CHECKING:
    from yaie_engine.sleep import Freed, SleepReport, WakeReport

LEVEL = option(
    "level",
    "1: release the KV cache, move weights off a GPU; 2: drop the weights, too [default: 1]",
    kind="choice",
    choices=("1", "2"),
    metavar="1|2",
)
NAME = (("name", "?", "the engine [default: the current one]"),)


def _sleep(call: Call) -> None:
    from yaie_engine.errors import BusyError

    engine = session.get(call.given.get("name"))
    level, force = int(call.given.get("level", 1)), bool(call.given.get("force"))
    try:
        report = aside("sleep", partial(_put_to_sleep, engine, level, force))
    except BusyError as busy:
        noun = "request is" if busy.count == 1 else "requests are"
        raise UsageProblem(
            f"{busy.count} {noun} running in engine {engine.name!r}; wait, or --force cancels them"
        ) from None
    if report.already:
        print(f"{engine.model} sleeps already, at level {report.level}; {_way_back(engine)}.")
        return
    count = report.num_cancelled
    ended = f"; {count} running {'request' if count == 1 else 'requests'} cancelled" if count else ""
    print(f"{engine.model} sleeps (level {report.level}): {told(report.freed)}{ended}. {_way_back(engine)}.")


def _wake(call: Call) -> None:
    engine = session.get(call.given.get("name"))
    report = aside("wake", partial(_wake_up, engine))
    took = "" if static_mode() else f" after {report.seconds:.1f} s"
    print(f"{engine.model} is awake; nothing to do." if report.already else f"{engine.model} is awake again{took}.")


def told(freed: Freed) -> str:
    """What was given back, in words."""
    size = f"{freed.weight_bytes / 2**20:,.1f} MiB of weights "
    weights = {"dropped": size + "dropped", "host": size + "moved to host memory", "kept": "weights stay"}
    why = f" ({freed.why})" if freed.why else ""
    cache = f"{freed.kv_bytes / 2**20:,.1f} MiB of KV cache released, " if freed.kv_bytes else ""
    return f"{cache}{weights[freed.weights]}{why}"


def _put_to_sleep(engine: LoadedEngine, level: int, force: bool) -> SleepReport:
    from yaie_engine import LLM
    from yaie_magic.remote.sleep import sleep

    return engine.llm.sleep(level, force=force) if isinstance(engine.llm, LLM) else sleep(engine.llm, level, force)


def _wake_up(engine: LoadedEngine) -> WakeReport:
    from yaie_engine import LLM
    from yaie_magic.remote.sleep import wake_up

    return engine.llm.wake_up() if isinstance(engine.llm, LLM) else wake_up(engine.llm)


def _way_back(engine: LoadedEngine) -> str:
    name = "" if engine.name == session.current else f" {engine.name}"
    return f"%yaie wake{name} wakes it"


def _names() -> Iterable[str]:
    return list(session.engines)


SUBCOMMANDS = (
    Subcommand(
        "sleep",
        "give the engine's memory back for a while; chats and history are kept, the cache is emptied",
        _sleep,
        lambda: (LEVEL, FORCE),
        NAME,
        _names,
    ),
    Subcommand("wake", "take the memory of a sleeping engine again", _wake, places=NAME, words=_names),
)
