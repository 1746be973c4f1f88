"""A browser and a JupyterLab for the tests of this folder; without either they are skipped with the reason."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "scripts" / "house"))


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A headless Chromium."""
    from lab_server import CHROMIUM_NAMES

    program = next(filter(None, map(shutil.which, CHROMIUM_NAMES)), None)
    if program is None:
        pytest.skip("no Chromium on PATH (Debian: apt-get install chromium fonts-dejavu)")
    if importlib.util.find_spec("jupyterlab") is None or importlib.util.find_spec("playwright") is None:
        pytest.skip("jupyterlab or playwright is not installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--disable-background-networking"]
        browser = playwright.chromium.launch(executable_path=program, headless=True, args=flags)
        yield browser
        browser.close()
