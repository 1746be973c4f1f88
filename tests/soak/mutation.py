"""Row 25: mistakes drawn from all that `scripts/mutate` can plant."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from .figure import Figure
from .suite import ROOT

SHARE = 0.05
LONGEST_S = 3600


def mutation(size: int, seed: int) -> Figure:
    """`size` of them; at most one of twenty may survive (of few, one)."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "figures.json"
        done = subprocess.run(
            [sys.executable, "-m", "tests.mutation.run", "--sample", str(size), "--seed", str(seed), "--jobs", "1",
             "--json", str(file)],
            cwd=ROOT, capture_output=True, text=True, check=False, timeout=LONGEST_S,
        )  # fmt: skip
        print(done.stdout, done.stderr, sep="", flush=True)
        if not file.is_file():
            return Figure("0 mistakes", "it did not run", (f"ended with {done.returncode}: {done.stderr[-200:]}",))
        found = json.loads(file.read_text(encoding="utf-8"))["files"]
    counts: Counter[str] = Counter()
    for figures in found.values():
        counts.update(figures)
    caught, survived = counts["killed"] + counts["timed out"], counts["survived"]
    most = max(1, int(SHARE * (caught + survived)))
    faults = (
        () if survived <= most else (f"{survived} of {caught + survived} survive; see scripts/mutate --seed {seed}",)
    )
    if not caught:
        faults += ("nothing was caught",)
    told = f"{caught} caught, {survived} survived, {counts['equivalent']} change nothing"
    return Figure(f"{caught + survived} mistakes", told, faults)
