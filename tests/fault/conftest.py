"""The engines of `tests/engine`: one small model, cheap boundaries, freed blocks full of NaN."""

from __future__ import annotations

from tests.engine.conftest import folder, formula, llm, make_llm, one_thread, overlap, reference, shared_llm
from tests.poison import poisoned

__all__ = ["folder", "formula", "llm", "make_llm", "one_thread", "overlap", "poisoned", "reference", "shared_llm"]
