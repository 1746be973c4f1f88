"""How much of the machine other processes took while something was measured."""

from __future__ import annotations

import os
import time

import psutil


class Contention:
    """From its making to `share`: the part of all cores that others used, neither this process nor the one that is
    measured and its descendants (0: none is; this process itself may be it).

    What the machine's own virtualisation took away counts as foreign. Caches and memory bandwidth that others use are
    not seen.
    """

    def __init__(self, measured: int = 0) -> None:
        self._measured = measured
        self._cores = psutil.cpu_count() or 1
        self._began, self._busy, self._used = time.perf_counter(), busy_seconds(), self._own_seconds()

    def share(self) -> float:
        """Of all cores: 0 to 1."""
        wall = time.perf_counter() - self._began
        foreign = (busy_seconds() - self._busy) - (self._own_seconds() - self._used)
        return min(1.0, max(0.0, foreign / (wall * self._cores)))

    def _own_seconds(self) -> float:
        if self._measured == os.getpid():
            return family_seconds(self._measured)
        times = psutil.Process().cpu_times()
        return times.user + times.system + (family_seconds(self._measured) if self._measured else 0.0)


def busy_seconds() -> float:
    """Processor seconds of everything since the machine started."""
    times = psutil.cpu_times()
    # `guest` is part of `user`, and `iowait` is waiting.
    return sum(getattr(times, name, 0.0) for name in ("user", "nice", "system", "irq", "softirq", "steal"))


def family_seconds(pid: int) -> float:
    """Processor seconds of a process and its descendants; one that is gone counts through its parent."""
    total = 0.0
    try:
        root = psutil.Process(pid)
        family = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return total
    for process in family:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + getattr(times, "children_user", 0.0)
        total += getattr(times, "children_system", 0.0)
    return total


def wait_until_quiet(limit: float, seconds: float, sample: float = 2.0) -> float:
    """Wait up to `seconds` for a `sample` in which others take at most `limit`; the share in the last one."""
    end = time.monotonic() + seconds
    while True:
        watch = Contention()
        time.sleep(sample)
        share = watch.share()
        if share <= limit or time.monotonic() >= end:
            return share
