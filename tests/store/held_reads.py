"""Reads of records that a test counts and holds up."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from yaie_engine.store.prefix_store import PrefixStore


class Reads:
    """Counts reads by record, and holds them up until `go` is set; `begun`: there was one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names, self.begun, self.go = list[str](), threading.Event(), threading.Event()
        read = PrefixStore.read

        def counted(store: PrefixStore[Any], entry: Any) -> Any:
            self.names.append(entry.name)
            self.begun.set()
            assert self.go.wait(60)
            return read(store, entry)

        monkeypatch.setattr(PrefixStore, "read", counted)
