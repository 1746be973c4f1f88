"""Every engine there is: in this kernel, behind an address, and detached ones that no kernel may be attached to."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from yaie_magic.render import static_mode
from yaie_magic.session import LoadedEngine, session
from yaie_magic.terminal import printable

if TYPE_CHECKING:
    from yaie_magic.detached.registry import Found, Listing


def roster() -> list[str]:
    """A line for each; nothing when the only one is an engine of this kernel, of which all is said elsewhere."""
    listing = _detached()
    detached = listing.engines if listing else {}
    lines = [_held(engine, _its(engine, detached)) for engine in session.engines.values()]
    attached = [name for name, engine in session.engines.items() if _its(engine, detached)]
    lines += [_free(found) for name, found in detached.items() if name not in attached]
    plain = len(session.engines) == len(lines) == 1 and all(e.elsewhere is None for e in session.engines.values())
    notes = [f"  {printable(note)}" for note in listing.notes] if listing else []
    return notes if plain else [f"  {line}" for line in lines] + notes


def _detached() -> Listing | None:
    """None where outputs are compared: what other notebooks left running is none of this one's."""
    if static_mode():
        return None
    from yaie_engine.errors import YaieError
    from yaie_magic.detached import registry

    try:
        return registry.look()
    except YaieError as error:
        return registry.Listing({}, (str(error),))


def _its(engine: LoadedEngine, detached: dict[str, Found]) -> Found | None:
    """The detached engine that this one is."""
    from yaie_magic.detached.attachment import where

    found = detached.get(engine.name)
    mine = found is not None and engine.elsewhere is not None and engine.elsewhere.where == where(found.record)
    return found if mine else None


def _held(engine: LoadedEngine, found: Found | None) -> str:
    place = "in this kernel"
    if engine.elsewhere is not None:
        place = engine.elsewhere.where.partition(" in process")[0] if static_mode() else engine.elsewhere.where
    parts = [place]
    if found is not None:
        parts.append(_times(found))
    if not engine.alive:
        parts.append(f"serves nothing any more; %yaie restart {engine.name}")
    if engine.name == session.current:
        parts.append("current")
    return printable(f"{engine.name}: {engine.model}, {', '.join(parts)}")


def _free(found: Found) -> str:
    from yaie_magic.detached.attachment import where

    record = found.record
    return printable(
        f"{record.name}: {record.model}, {where(record)}, {_times(found)}; %yaie attach {record.name} uses it"
    )


def _times(found: Found) -> str:
    from yaie_magic.detached.table import lasting

    since = time.strftime("%Y-%m-%d %H:%M", time.localtime(found.record.started))
    return f"since {since}, idle {lasting(found.idle_s)}"
