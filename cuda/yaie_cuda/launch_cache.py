"""What a launcher remembers of the launches that it prepared."""

from __future__ import annotations

from collections.abc import Hashable
from threading import Lock
from typing import Any

from . import sources

MOST = 1024  # prepared calls that one launcher keeps


class LaunchCache:
    """Prepared calls by what they depend on; of too many, the oldest is forgotten. Thread: any.

    Whoever launches one that uses buffers holds `turn` meanwhile: its launches share them with those of other calls.

    All are forgotten when a kernel's source is replaced and when a launch fails: buffers that kernels leave as they
    need them are made anew with the calls that are prepared after it.
    """

    def __init__(self) -> None:
        self._kept: dict[Hashable, Any] = {}
        self.epoch = 0  # goes up when all is forgotten
        self._generation = sources.generation
        self._lock = Lock()
        self.turn = Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: Hashable) -> Any:
        """What is kept for `key`, or None."""
        if self._generation != sources.generation:
            self.forget()
        return self._kept.get(key)

    def forget(self) -> None:
        """Forget everything."""
        with self._lock:
            self._kept = {}
            self.epoch += 1
            self._generation = sources.generation

    def keep(self, key: Hashable, prepared: object, epoch: int) -> None:
        """Keep what was prepared from `epoch` on, unless all was forgotten since."""
        with self._lock:
            if epoch != self.epoch:
                return
            while len(self._kept) >= MOST:
                del self._kept[next(iter(self._kept))]
            self._kept[key] = prepared
