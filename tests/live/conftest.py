"""Recordings of real runs, a browser and pages with views in it."""

from __future__ import annotations

import copy
import importlib.util
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.live.page import Harness
from tests.live.runs import RUNS
from yaie_widgets.live.source import source_of

CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
Recordings = Callable[[str], dict[str, Any]]


@pytest.fixture(scope="session")
def recording() -> Recordings:
    """`recording("empty" | "small" | "busy" | "full")`: the recording of that run, one's own to change."""
    known: dict[str, dict[str, Any]] = {}

    def get(name: str) -> dict[str, Any]:
        if name not in known:
            llm = RUNS[name]()
            known[name] = source_of(llm).recording()
            llm.close()
            known[name]["engine"]["state"] = "ready"
        return copy.deepcopy(known[name])

    return get


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A headless Chromium."""
    program = next(filter(None, map(shutil.which, CHROMIUM_NAMES)), None)
    if program is None or importlib.util.find_spec("playwright") is None:
        pytest.skip("no Chromium on PATH (Debian: apt-get install chromium fonts-dejavu), or no playwright")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--disable-background-networking"]
        browser = playwright.chromium.launch(executable_path=program, headless=True, args=flags)
        yield browser
        browser.close()


@pytest.fixture
def harness(browser: Any) -> Iterator[Harness]:
    """`harness("tree", recording("busy"), theme="light", width=900)`: a page with that view."""
    made = Harness(browser)
    yield made
    made.close()


KEPT = {("light", 900), ("dark", 560), ("light", 500), ("dark", 380)}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Looks are checked in light when wide and in dark when narrow; the other pairs are for the full grids."""
    for item in items:
        chosen = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        pair = chosen.get("theme"), chosen.get("width")
        if None not in pair and pair not in KEPT and "live" in item.path.parts:
            item.add_marker(pytest.mark.full)
