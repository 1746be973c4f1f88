"""Row 18: every fuzz target for some seconds, one after the other."""

from __future__ import annotations

import re
import subprocess
import time

from tests.fuzz.targets import TARGETS

from .figure import Figure
from .suite import ROOT

START_S = 300


def fuzzing(size: int, seed: int) -> Figure:
    """`size` seconds for each target; what breaks one is named with the file that shows it."""
    probe = subprocess.run(["./scripts/fuzz"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=START_S)
    if probe.returncode != 0:
        return Figure("0 targets", "", skipped=(probe.stdout + probe.stderr).strip().splitlines()[-1])
    faults, runs, longest = [], 0, 0.0
    for name in TARGETS:
        start = time.monotonic()
        done = subprocess.run(
            ["./scripts/fuzz", name, "--seconds", str(size), "--seed", str(max(1, seed % 2**31))], cwd=ROOT,
            capture_output=True, text=True, errors="replace", check=False, timeout=size + START_S,
        )  # fmt: skip
        said = done.stdout + done.stderr
        print(f"{name}: {done.returncode}\n{said[-2000:]}", flush=True)
        found = re.search(r"number_of_executed_units: (\d+)", said)
        runs += int(found.group(1)) if found else 0
        longest = max(longest, time.monotonic() - start)
        if done.returncode != 0:
            where = re.search(r"Test unit written to (\S+)", said)
            faults.append(f"{name}: {where.group(1) if where else said.strip()[-200:]}")
        elif not found:
            faults.append(f"{name}: it said nothing of what it ran")
    done_now = f"{len(TARGETS)} targets x {size} s"
    return Figure(done_now, f"{runs:,} inputs, {len(faults)} broken", tuple(faults), f"longest {longest:.0f} s")
