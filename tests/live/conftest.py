"""Recordings of real runs, and pages with views in a browser."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.browsing import headless_browser
from tests.live.page import Harness, Pages
from tests.live.played import played

Recordings = Callable[[str], dict[str, Any]]
browser = pytest.fixture(scope="session")(headless_browser)


@pytest.fixture(scope="session")
def recording() -> Recordings:
    """`recording("empty" | "small" | "busy" | "swaps" | "full")`: the recording of that run, one's own to change."""
    known: dict[str, bytes] = {}

    def get(name: str) -> dict[str, Any]:
        if name not in known:
            made = played(name).recording
            known[name] = pickle.dumps({**made, "engine": {**made["engine"], "state": "ready"}})
        return pickle.loads(known[name])

    return get


@pytest.fixture(scope="session")
def pages(browser: Any) -> Pages:
    """The pages of the session."""
    return Pages(browser)


@pytest.fixture
def harness(pages: Pages) -> Iterator[Harness]:
    """`harness("tree", recording("busy"), theme="light", width=900)`: a page with that view."""
    made = Harness(pages)
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
