"""The harness itself: a cell is run on a kernel, and what JupyterLab asks meanwhile is answered and named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.slow]
CELLS = ["21 * 2"]
# The second answer about sessions, from which the page learns of the notebook's kernel, comes late.
LATE = """
const real = window.fetch;
let asked = 0;
window.fetch = async (what, ...rest) => {
  const address = String(what.url ?? what);
  if (address.includes("/api/sessions") && ++asked > 1) await new Promise(done => setTimeout(done, 3000));
  return real(what, ...rest);
};
"""


def test_a_page_that_says_idle_before_it_knows_its_kernel(
    lab_notebook: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    page = lab_notebook(CELLS, script=LATE)
    assert "42" in page.run(0).inner_text()
    assert len(page.lab.ask("GET", "sessions")) == 1
    assert capsys.readouterr().err == ""


def test_dialogs_in_the_way_are_answered_and_named(
    lab_notebook: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    page = lab_notebook(CELLS)
    page.locator('[data-command="notebook:restart-kernel"]').click()
    page.locator("dialog.jp-Dialog").wait_for()
    assert "42" in page.run(0).inner_text()
    assert "answered a dialog: Restart Kernel?" in capsys.readouterr().err

    # Without a kernel the key itself brings one up.
    for session in page.lab.ask("GET", "sessions"):
        page.lab.ask("DELETE", f"sessions/{session['id']}")
    page.get_by_text("No Kernel").first.wait_for()
    assert "42" in page.run(0).inner_text() and page.locator(".jp-InputArea-prompt").first.inner_text() == "[1]:"
    assert "answered a dialog: Select Kernel" in capsys.readouterr().err


def test_a_cell_that_does_not_end_names_what_is_open(lab_notebook: Callable[..., Any]) -> None:
    page = lab_notebook(["import time; time.sleep(60)"])
    page.run(0, wait=False)
    page.locator('[data-command="notebook:restart-kernel"]').click()
    page.locator("dialog.jp-Dialog").wait_for()
    with pytest.raises(Exception, match=r"did not end in 1 s, dialogs open: .*Restart Kernel"):
        page.ended(0, 1)
