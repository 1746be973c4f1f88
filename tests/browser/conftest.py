"""A JupyterLab for the tests of this folder; without one, or without a browser, they are skipped with the reason."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import nbformat
import pytest

from tests.browsing import headless_browser

browser = pytest.fixture(scope="session")(headless_browser)


@pytest.fixture(scope="session")
def lab(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One JupyterLab for the session, in its dark theme; notebooks lie in `lab.root`, its log in `lab_log`."""
    pytest.importorskip("jupyterlab")
    from lab_server import running_lab

    folder = tmp_path_factory.mktemp("lab")
    root = folder / "notebooks"
    root.mkdir()
    environment = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    with running_lab(root, folder, theme="JupyterLab Dark", environment=environment) as running:
        yield SimpleNamespace(server=running, root=root, log=folder / "lab.log")


@pytest.fixture
def lab_notebook(browser: Any, lab: Any) -> Iterator[Callable[..., Any]]:
    """`lab_notebook(cells) -> page`: a notebook of these cells, open and with a kernel; nothing has run.

    The page has `saved` (its file), `outside` (what it asked other machines for), `run(index, wait=True)`, which gives
    the cell's element, and `save(holds)`, which gives what is in the file once that `holds`. With the name of a
    notebook in place of cells that one is opened again. A `script` runs in the page before all others.
    """
    from functools import partial

    from lab_page import ended, open_notebook, run_cell, save
    from screenshots import watch_requests

    pages: list[Any] = []

    def make(cells: list[str] | str, script: str = "") -> Any:
        name = cells if isinstance(cells, str) else f"n{secrets.token_hex(4)}.ipynb"
        if not isinstance(cells, str):
            book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in cells])
            nbformat.write(book, lab.root / name)
        page = browser.new_page(viewport={"width": 1100, "height": 1400})
        pages.append(page)
        if script:
            page.add_init_script(script)
        page.outside = watch_requests(page, lab.server)
        page.saved, page.lab = lab.root / name, lab.server
        page.run, page.ended = partial(run_cell, page), partial(ended, page)
        page.save = partial(save, page, page.saved)
        open_notebook(page, lab.server, name)
        return page

    yield make
    for page in pages:
        page.close()
    for session in lab.server.ask("GET", "sessions"):
        lab.server.ask("DELETE", f"sessions/{session['id']}")
