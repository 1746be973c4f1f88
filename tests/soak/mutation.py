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

CAUGHT, OF = 95, 100
LEAST = 20
"""Of fewer the share says nothing: one that survives would be more than one of twenty."""
LONGEST_S = 3600


def mutation(size: int, seed: int) -> Figure:
    """`size` of them; of those that change something at least 95 of 100 are caught, whatever their number."""
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
    faults = broken(caught, survived, f"scripts/mutate --sample {size} --seed {seed}")
    told = f"{caught} caught, {survived} survived, {counts['equivalent']} change nothing"
    return Figure(f"{caught + survived} mistakes", told, faults)


def broken(caught: int, survived: int, again: str) -> tuple[str, ...]:
    """What is wrong with so many; the share in whole numbers."""
    judged, faults = caught + survived, ()
    if OF * caught < CAUGHT * judged:
        faults += (f"{survived} of {judged} survive; see {again}",)
    if judged < LEAST:
        faults += (f"{judged} mistakes that change something are too few for {CAUGHT} of {OF}: at least {LEAST}",)
    return faults
