"""One headless Chromium for whatever looks at pages: tests in a browser, and the pictures of the documentation."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = ("--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--disable-background-networking")


class NoBrowser(RuntimeError):
    """There is nothing to look at pages with; says what to install."""


@contextmanager
def headless_chromium() -> Iterator[Any]:
    """A browser of Playwright's, on a Chromium of this machine.

    Raises:
        NoBrowser: no such program on PATH, or no playwright.
    """
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        raise NoBrowser("no Chromium on PATH (Debian: apt-get install chromium fonts-dejavu)")
    if importlib.util.find_spec("playwright") is None:
        raise NoBrowser("playwright is not installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, headless=True, args=list(FLAGS))
        yield browser
        browser.close()
