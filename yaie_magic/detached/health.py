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
    found = health(record)
    state = str(found.get("status", "no answer"))
    if state == "loading":
        return f"loading: {found.get('stage', '')}"
    active = found.get("active_requests", 0), found.get("queue_length", 0)
    running = sum(count for count in active if isinstance(count, int))
    if state == "ok":
        return f"{running} running" if running else "ready"
    return state
