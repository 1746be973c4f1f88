"""A browser for the drawings."""

from __future__ import annotations

import pytest

from tests.browsing import headless_browser

browser = pytest.fixture(scope="module")(headless_browser)
