"""Whatever the settings, the policies, the cancels and the caches: each request gets the answer that it gets alone."""

from __future__ import annotations

import os
import random
from pathlib import Path

from tests.engine.models import Reference
from tests.engine.random_engines import run

ENGINES = int(os.environ.get("YAIE_RANDOM_ENGINES", "2"))


def test_random_engines_answer_as_quiet_ones(folder: Path, reference: Reference) -> None:
    seed = int(os.environ.get("YAIE_SEED", random.randrange(10**6)))
    figures, wrong = run(str(folder), reference, seed, ENGINES)
    print(f"seed {seed}: {dict(figures.counts)}")
    assert wrong == []
    assert figures.counts["engines"] == ENGINES and figures.counts["requests"] >= ENGINES
