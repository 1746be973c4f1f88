"""Sleep and wake of an engine behind an address, by the routes of our own server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from yaie_engine.serving import NotOffered
from yaie_engine.sleep import Freed, SleepReport, WakeReport, check_level

from .faults import RemoteError, one_line
from .figures import MOST_BYTES, count, seconds
from .llm import RemoteLLM

if TYPE_CHECKING:
    from yaie_engine.serving import Engine

PATIENCE_S = 600.0
"""How long weights may be on their way."""


def sleep(llm: Engine, level: int = 1, force: bool = False) -> SleepReport:
    """Have the engine give its memory back.

    Raises:
        NotOffered: the server is not ours.
        YaieError: it refuses, since requests are running or it cannot do that; or it does not answer.
    """
    level = check_level(level)
    found = _ask(llm, f"/sleep?level={level}&force={'true' if force else 'false'}")
    freed = found.get("freed") if isinstance(found.get("freed"), dict) else None
    try:
        if freed is None or freed["weights"] not in ("kept", "host", "dropped") or not isinstance(freed["why"], str):
            raise ValueError("freed")
        return SleepReport(
            check_level(found["level"]),
            Freed(_told(freed["kv_bytes"]), _told(freed["weight_bytes"]), freed["weights"], one_line(freed["why"])),
            _told(found["num_cancelled"]),
            found["already"] is True,
        )
    except (KeyError, ValueError, TypeError):
        raise RemoteError("the server does not tell what it gave back; is it another version?") from None


def wake_up(llm: Engine) -> WakeReport:
    """Have the engine take its memory again.

    Raises:
        NotOffered, YaieError: as for `sleep`.
    """
    found = _ask(llm, "/wake_up")
    took = seconds(found.get("seconds"))
    if took is None:
        raise RemoteError("the server does not tell how it woke; is it another version?")
    return WakeReport(took, found.get("already") is True)


def _ask(llm: Engine, path: str) -> dict[str, Any]:
    if not isinstance(llm, RemoteLLM) or llm.kind != "yaie":
        where = getattr(llm, "url", "it")
        raise NotOffered(f"{where} is not a YAIE server: it has no sleep")
    found = llm.client.post_json(path, {}, timeout=PATIENCE_S)
    if not isinstance(found, dict):
        raise RemoteError(f"{llm.url} does not answer {path.partition('?')[0]} with an object")
    return found


def _told(value: object) -> int:
    found = count(value, MOST_BYTES)
    if found is None:
        raise ValueError("a number of bytes, or of requests")
    return found
