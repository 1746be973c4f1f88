"""The detached engines of this user on this machine."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from yaie_engine.errors import YaieError
from yaie_magic.options import UsageProblem

from .folder import PrivateFolder, folder_path
from .record import LOG_SUFFIX, SUFFIX, EngineRecord, check_name


@dataclass(frozen=True, slots=True)
class Found:
    """An engine that runs, and how long nobody has asked it for anything (seconds)."""

    record: EngineRecord
    idle_s: float


@dataclass(frozen=True, slots=True)
class Listing:
    """What runs, by name, and one line for each file that was removed or cannot be used."""

    engines: dict[str, Found]
    notes: tuple[str, ...]


def look() -> Listing:
    """Read all files. Those whose process is gone are removed, and it is said so."""
    if not folder_path().is_dir():
        return Listing({}, ())
    engines: dict[str, Found] = {}
    notes: list[str] = []
    with PrivateFolder() as folder:
        for name in folder.names(SUFFIX):
            try:
                found = _read(folder, name)
            except YaieError as error:
                notes.append(str(error))
                continue
            if found is None:
                continue
            if found.record.runs:
                engines[name] = found
            else:
                notes.append(_remove_stale(folder, found.record))
    return Listing(engines, tuple(notes))


def find(name: str) -> Found | None:
    """The engine of that name, if it runs; a file whose process is gone is removed.

    Raises:
        YaieError: its file cannot be used.
    """
    if not folder_path().is_dir():
        return None
    with PrivateFolder() as folder:
        found = _read(folder, check_name(name))
        if found is None or found.record.runs:
            return found
        _remove_stale(folder, found.record)
        return None


def choose(listing: Listing, name: str | None, command: str) -> Found:
    """The engine of that name, or the only one.

    Args:
        command: what to type with a name, for the message.

    Raises:
        UsageProblem: there is none, or there are several.
    """
    if name is not None and name in listing.engines:
        return listing.engines[name]
    if not listing.engines:
        raise UsageProblem("no detached engine runs; %yaie load MODEL --detached starts one")
    if name is not None:
        from yaie_engine.validation import did_you_mean

        hint = did_you_mean(name, listing.engines) or f"; there is {', '.join(listing.engines)}"
        raise UsageProblem(f"no detached engine is called {name!r}{hint}")
    if len(listing.engines) > 1:
        raise UsageProblem(f"several detached engines run: {', '.join(listing.engines)}; name one: {command} NAME")
    return next(iter(listing.engines.values()))


def forget(record: EngineRecord, keep_log: bool = False) -> None:
    """Remove the files of an engine that has ended, unless another has taken its name since."""
    with PrivateFolder() as folder:
        data = folder.read(record.name + SUFFIX)
        if data is not None and data[0] == record.to_bytes():
            folder.remove(record.name + SUFFIX)
            if not keep_log:
                folder.remove(record.name + LOG_SUFFIX)


def log_of(record: EngineRecord) -> Path:
    """Where its log is, or would be."""
    return folder_path() / (record.name + LOG_SUFFIX)


def _read(folder: PrivateFolder, name: str) -> Found | None:
    data = folder.read(name + SUFFIX)
    if data is None:
        return None
    try:
        record = EngineRecord.from_bytes(data[0])
    except YaieError as error:
        raise YaieError(f"{folder.path / (name + SUFFIX)} is not used: {error}; remove it") from None
    if record.name != name:
        raise YaieError(f"{folder.path / (name + SUFFIX)} is not used: it is another engine's; remove it")
    return Found(record, max(0.0, time.time() - data[1]))


def _remove_stale(folder: PrivateFolder, record: EngineRecord) -> str:
    folder.remove(record.name + SUFFIX)
    return (
        f"the detached engine {record.name} ({record.model}, process {record.pid}) is gone; its file was removed, "
        f"its log is {log_of(record)}"
    )
