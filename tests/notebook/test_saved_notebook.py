"""What is left of generations in a saved notebook: small, readable without a kernel, escaped in every export."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbconvert import HTMLExporter, MarkdownExporter

HERE = Path(__file__).parent
START = (
    "import fakes, time\nfrom yaie_magic.session import session\nsession.build = fakes.build\n"
    "fakes.SPEED.step = 0.0005\n%load_ext yaie_magic\n%yaie load"
)
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Fifty generations of 200 tokens and a batch, run as `jupyter execute` runs them."""
    cells = [START, *[f"%%generate -m 200\nprompt {n} {HOSTILE}" for n in range(50)], "%%batch -m 9\none\n---\ntwo"]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in cells])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(HERE), prepend=":")
        patch.delenv("YAIE_NOTEBOOK", raising=False)
        patch.delenv("PYTEST_CURRENT_TEST", raising=False)
        NotebookClient(book, timeout=120, kernel_name="python3", store_widget_state=False).execute()
    path = tmp_path_factory.mktemp("saved") / "fifty.ipynb"
    nbformat.write(book, path)
    return path


def test_fifty_generations_are_less_than_a_megabyte(saved: Path) -> None:
    print(f"{saved.stat().st_size:,} bytes")
    assert saved.stat().st_size < 1_000_000
    text = saved.read_text()
    assert "widget-view" not in text and "model_id" not in text
    assert text.count("w199 ") == 100, "each text once as plain text and once in the static form"


def test_exports_are_readable_and_escaped(saved: Path) -> None:
    book = nbformat.read(saved, as_version=4)
    page, _ = HTMLExporter().from_notebook_node(book)
    assert page.count('class="yaie y-gen twin"') == 51
    assert "2 requests · 2 finished" in page
    twins = page[page.index('class="yaie y-gen twin"') :]
    assert not re.search(r"<(script|img|iframe)[^>]*alert|onerror=alert\(2\)>", twins.split("</body>")[0])
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in twins
    text, _ = MarkdownExporter().from_notebook_node(book)
    assert "w199" in text
