"""The process of one part."""

from __future__ import annotations

import importlib
import time
from pathlib import Path

from .bench import Bench, GpuBench, HostBench
from .context import Context
from .parts import BY_NAME
from .records import RecordFile

MARGIN_S = 2.0


def run_child(name: str, records: Path, seconds: float, *, quick: bool, cpu: bool) -> int:
    """Run part `name` here. What it raises ends the process, and the run that started it says so."""
    deadline = time.monotonic() + seconds - MARGIN_S
    bench: Bench = HostBench() if cpu else GpuBench()
    part = importlib.import_module(f".{BY_NAME[name].module}", __package__)
    part.run(Context(bench, RecordFile(records), deadline, quick=quick, tiny=cpu))
    return 0
