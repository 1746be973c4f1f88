"""A notebook on a page of JupyterLab, run from its first cell to its last."""

from __future__ import annotations

import time
from typing import Any

from lab_server import Lab

TRIES = 3
STILL = 10  # seconds of an idle kernel with cells to go
IDLE = '.jp-Notebook-ExecutionIndicator[data-status="idle"]'
PROMPTS = (
    "[...document.querySelectorAll('.jp-Notebook .jp-CodeCell .jp-InputArea-prompt')].map(p => p.textContent.trim())"
)
ALL_CELLS_RAN = f"() => {{ const all = {PROMPTS}; return all.length > 0 && all.every(p => /^\\[\\d+\\]/.test(p)); }}"

ERROR = '.jp-OutputArea-output[data-mime-type="application/vnd.jupyter.error"]'


def run_notebook(page: Any, lab: Lab, name: str, seconds: float = 240) -> None:
    """Open the notebook, Run > Run All Cells, and return when every cell has its number.

    The kernel is there before the page is: without one JupyterLab asks for it while it already runs, and drops the
    command. It may lose the command or an answer all the same on a busy machine. What is left to do is then asked of
    the server and not of the page: when the kernel idles with cells to go, the notebook starts anew on a fresh kernel.

    Raises:
        RuntimeError: a cell ended in an error; holds its text.
        TimeoutError: not every cell ran; says what the page and the server show.
    """
    deadline = time.monotonic() + seconds
    lab.start_kernel(name)
    for attempt in range(TRIES):
        if attempt:
            lab.restart_kernels()
        page.goto(lab.notebook(name))
        page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=60_000)
        page.wait_for_selector(IDLE, timeout=60_000)
        page.get_by_role("menuitem", name="Run", exact=True).click()
        page.locator('[data-command="runmenu:run-all"]').click()
        if _all_ran(page, lab, deadline):
            return
        if errors := page.locator(ERROR).all_inner_texts():
            raise RuntimeError(f"a cell failed: {errors[0]}")
    raise TimeoutError(f"not every cell ran: page {page.evaluate(PROMPTS)}, kernels {lab.kernel_states()}")


def _all_ran(page: Any, lab: Lab, deadline: float) -> bool:
    """Wait for the last cell; False when the kernel stands still before it, or time is up."""
    still = 0
    while not page.evaluate(ALL_CELLS_RAN):
        still = still + 1 if set(lab.kernel_states()) == {"idle"} else 0
        if still > STILL or time.monotonic() > deadline:
            return False
        page.wait_for_timeout(1000)
    return True
