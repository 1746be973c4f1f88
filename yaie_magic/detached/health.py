"""How a detached engine is, by its own word."""

from __future__ import annotations

from typing import Any

from yaie_engine.errors import YaieError

from .record import EngineRecord

PATIENCE_S = 2.0


def health(record: EngineRecord) -> dict[str, Any]:
    """What it answers to /health; {} when it does not answer. The key is not sent, and it does not count as asking."""
    from yaie_magic.remote.address import parse_address
    from yaie_magic.remote.client import Client

    client = Client(parse_address(record.url), None, PATIENCE_S)
    try:
        found = client.get_json("/health", any_status=True)
    except YaieError:
        return {}
    finally:
        client.close()
    return found if isinstance(found, dict) else {}


def state_of(record: EngineRecord) -> str:
    """In a few words: what it does, or that it is silent."""
    from yaie_magic.remote.faults import one_line
    from yaie_magic.remote.figures import count

    found = health(record)  # after its engine has ended, anybody may listen there
    state = one_line(str(found.get("status", "no answer")))
    if state == "loading":
        return f"loading: {one_line(str(found.get('stage', '')))}"
    running = sum(count(found.get(name)) or 0 for name in ("active_requests", "queue_length"))
    if state == "ok":
        return f"{running} running" if running else "ready"
    return state
