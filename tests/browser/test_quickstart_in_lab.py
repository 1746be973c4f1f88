"""The quickstart notebook in a real JupyterLab: every cell runs, nothing comes from elsewhere, it survives a save."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.slow]
NOTEBOOK = Path(__file__).parents[2] / "examples" / "01_quickstart.ipynb"
ERRORS = (
    '.jp-OutputArea-output[data-mime-type="application/vnd.jupyter.stderr"], .jp-RenderedText[data-mime-type*=error]'
)


@pytest.fixture(scope="module", params=["JupyterLab Light", pytest.param("JupyterLab Dark", marks=pytest.mark.full)])
def page(request: pytest.FixtureRequest, browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The notebook after all its cells ran, with the requests that left this machine in `page.outside`."""
    from lab_page import run_notebook
    from lab_server import running_lab
    from screenshots import copy_without_outputs, watch_requests

    folder = tmp_path_factory.mktemp("lab")
    root = folder / "notebooks"
    root.mkdir()
    copy_without_outputs(NOTEBOOK, root / NOTEBOOK.name)
    with running_lab(root, folder, theme=request.param, environment={"HF_HUB_OFFLINE": "1"}) as lab:
        page = browser.new_page(viewport={"width": 1200, "height": 1500})
        page.outside = watch_requests(page, lab)
        page.saved = root / NOTEBOOK.name
        run_notebook(page, lab, NOTEBOOK.name)
        yield page
        page.close()


def test_every_cell_ran_without_an_error(page: Any) -> None:
    assert [element.inner_text() for element in page.query_selector_all(ERRORS)] == []


def test_drawings_are_inline(page: Any) -> None:
    assert page.locator(".jp-OutputArea-output svg").count() >= 2


def test_lines_end_between_words(page: Any) -> None:
    texts = page.locator(".jp-OutputArea-output .yaie pre")
    breaks = texts.evaluate_all("all => all.map(one => getComputedStyle(one).wordBreak)")
    assert breaks and set(breaks) == {"normal"}


def test_nothing_was_fetched_from_elsewhere(page: Any) -> None:
    assert page.outside == []


def test_saved_notebook_is_small_and_holds_text(page: Any) -> None:
    from lab_page import save

    saved = save(page, page.saved, lambda book: "text/plain" in json.dumps(book["cells"]))
    assert page.saved.stat().st_size < 1_000_000
    assert "widgets" not in saved["metadata"]
    outputs = [output for cell in saved["cells"] if cell["cell_type"] == "code" for output in cell["outputs"]]
    assert any("text/plain" in output.get("data", {}) for output in outputs)
