"""A detached engine as a session of a kernel holds it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from yaie_engine.errors import EngineDeadError, YaieError
from yaie_engine.stages import READING_WEIGHTS
from yaie_magic.aside import aside
from yaie_magic.session import Elsewhere

from .attach import attach
from .launch import end, launch
from .record import EngineRecord
from .registry import log_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from yaie_engine import EngineConfig
    from yaie_magic.loading import Progress
    from yaie_magic.remote import RemoteLLM
    from yaie_magic.session import Opened


def opened(record: EngineRecord, llm: RemoteLLM) -> Opened:
    """The engine with what a session needs to know of it. To have it again is to end its process and start another."""

    def again(report: Progress | None) -> Opened:
        llm.close()
        finish(record)
        return start(record.name, config_of(record), record.idle_timeout, report)

    def check() -> None:
        if not record.runs:
            log = f" (its log is {log_of(record)})" if log_of(record).exists() else ""
            raise EngineDeadError(
                f"the detached engine {record.name} has ended{log}; %yaie restart {record.name} starts it anew"
            )

    parting = "ended with its process"
    return llm, Elsewhere(llm.model, where(record), parting, again, partial(finish, record), check)


def start(
    name: str,
    config: EngineConfig,
    idle_timeout: float,
    report: Progress | None,
    make_room: Callable[[], None] = lambda: None,
) -> Opened:
    """Launch and attach. `make_room` is called when the memory of what it replaces is needed.

    Raises:
        Interrupted, YaieError: as for `launch`.
    """

    def both(what: str, share: float | None) -> None:
        if what == READING_WEIGHTS:
            make_room()
        if report is not None:
            report(what, share)

    record = launch(name, config, idle_timeout, both)
    try:
        return opened(record, attach(record, report))
    except BaseException:  # the cell says that nothing was loaded: so nothing may be left
        finish(record)
        raise


def finish(record: EngineRecord) -> None:
    """End its process. An interrupt ends the wait, not the end.

    Raises:
        YaieError: it had to be killed.
    """
    if not aside("unload", partial(end, record)):
        raise YaieError(f"the detached engine {record.name} did not end by itself and was killed")


def where(record: EngineRecord) -> str:
    """For the reader, and different for each process."""
    return f"detached in process {record.pid}"


def config_of(record: EngineRecord) -> EngineConfig:
    """The settings it was loaded with.

    Raises:
        ConfigError: they are those of another version.
    """
    from yaie_engine import EngineConfig

    return EngineConfig(**record.config)


def same(record: EngineRecord, config: EngineConfig, idle_timeout: float | None) -> bool:
    """Whether an engine was loaded with exactly these settings; None: any idle time will do."""
    return record.config == config.model_dump(mode="json") and idle_timeout in (None, record.idle_timeout)


def resolved(config: EngineConfig) -> EngineConfig:
    """With paths that mean the same in every folder."""
    from yaie_engine.models.bundled import bundled_names

    given = {name: getattr(config, name) for name in ("model", "tokenizer", "chat_template")}
    if config.model in bundled_names():
        del given["model"]
    found: EngineConfig = config.replace(**{name: _from_here(value) for name, value in given.items() if value})
    return found


def _from_here(text: str) -> str:
    """The whole path where a text is the path of something; else the text, which may name a model or be a template."""
    try:
        path = Path(text).expanduser()
        return str(path.resolve()) if path.exists() else text
    except (OSError, ValueError, RuntimeError):  # too long, a zero byte, no such home
        return text
