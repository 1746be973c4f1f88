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
_PROMPT_OF = (
    "document.querySelectorAll('.jp-Notebook .jp-CodeCell')[%s].querySelector('.jp-InputArea-prompt').textContent"
)
_CHANGED = f"([index, before]) => {_PROMPT_OF % 'index'}.trim() !== before.trim()"
_ENDED = f"index => /^\\[\\d+\\]/.test({_PROMPT_OF % 'index'}.trim())"

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


def open_notebook(page: Any, lab: Lab, name: str) -> None:
    """Open the notebook on a kernel that is there before the page is, and wait until both are ready."""
    if not any(session["path"] == name for session in lab.ask("GET", "sessions")):
        lab.start_kernel(name)
    page.goto(lab.notebook(name))
    page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=60_000)
    page.wait_for_selector(IDLE, timeout=60_000)


def run_cell(page: Any, index: int, seconds: float = 60, wait: bool = True) -> Any:
    """Run one cell and give back its element: once it has begun, or with `wait` once it has ended."""
    cell = page.locator(".jp-Notebook .jp-CodeCell").nth(index)
    prompt = cell.locator(".jp-InputArea-prompt")
    before = prompt.inner_text()
    for _ in range(TRIES):
        cell.locator(".cm-content").click()
        page.keyboard.press("Control+Enter")
        try:
            page.wait_for_function(_CHANGED, arg=[index, before], timeout=5000)
            break
        except Exception:  # the page lost the key; it is pressed again
            before = prompt.inner_text()
    if wait:
        ended(page, index, seconds)
    return cell


def ended(page: Any, index: int, seconds: float = 60) -> None:
    """Wait until a cell has its number."""
    page.wait_for_function(_ENDED, arg=index, timeout=seconds * 1000)


def _all_ran(page: Any, lab: Lab, deadline: float) -> bool:
    """Wait for the last cell; False when the kernel stands still before it, or time is up."""
    still = 0
    while not page.evaluate(ALL_CELLS_RAN):
        still = still + 1 if set(lab.kernel_states()) == {"idle"} else 0
        if still > STILL or time.monotonic() > deadline:
            return False
        page.wait_for_timeout(1000)
    return True
