"""The bundled folder, and the program that made it, for the tests of this folder."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))


@pytest.fixture(scope="session")
def folder() -> Path:
    """Return the folder of the bundled model."""
    return ROOT / "engine" / "yaie_engine" / "bundled" / "tiny"
