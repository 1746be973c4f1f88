"""Talking to a detached engine from this process."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from yaie_engine.errors import YaieError
from yaie_magic.interrupt import Interrupted, Shield

from .health import health
from .record import EngineRecord
from .registry import log_of

if TYPE_CHECKING:
    from yaie_magic.loading import Progress
    from yaie_magic.remote import RemoteLLM

SILENT_S = 15.0
LOOK_S = 0.1
ANSWER_S = 10.0
"""Seconds to wait for short answers, once it is ready."""


def attach(record: EngineRecord, report: Progress | None = None) -> RemoteLLM:
    """The engine, as soon as it is ready: another kernel may have started it a moment ago.

    Raises:
        Interrupted: on Ctrl-C; the engine goes on, or goes on loading.
        YaieError: it failed, ended, or does not answer.
    """
    with Shield() as shield:
        from yaie_magic.remote.address import parse_address  # an import that is cut short cannot be repeated
        from yaie_magic.remote.probe import open_at

        try:
            _wait(record, report, shield)
        except KeyboardInterrupt:
            raise Interrupted(f"attach interrupted; {record.name} goes on without this kernel") from None
    return open_at(parse_address(record.url), record.hidden_key, None, ANSWER_S)


def _wait(record: EngineRecord, report: Progress | None, shield: Shield) -> None:
    """Until it serves."""
    heard = time.monotonic()
    while True:
        shield.check()
        found = health(record)
        status = found.get("status")
        if status in ("ok", "asleep"):
            return
        if status == "failed":
            raise YaieError(f"the detached engine {record.name} failed; its log is {log_of(record)}")
        if not found and not record.runs:
            raise YaieError(f"the detached engine {record.name} has ended")
        if found:
            heard = time.monotonic()
        elif time.monotonic() - heard > SILENT_S:
            raise YaieError(f"the detached engine {record.name} does not answer; yaie stop {record.name} ends it")
        if found and report is not None:
            report(str(found.get("stage", "starting")), None)
        with shield.waiting():
            time.sleep(LOOK_S)
