"""A notebook on a page of JupyterLab, run from its first cell to its last."""

from __future__ import annotations

import time
from typing import Any

from lab_server import Lab
from playwright.sync_api import TimeoutError as PlaywrightTimeout

TRIES = 3
CELL_S = 90.0  # seconds a cell may take
IDLE = '.jp-Notebook-ExecutionIndicator[data-status="idle"]'
PROMPTS = (
    "[...document.querySelectorAll('.jp-Notebook .jp-CodeCell .jp-InputArea-prompt')].map(p => p.textContent.trim())"
)
ALL_THERE = "count => document.querySelectorAll('.jp-Notebook .jp-CodeCell .cm-content').length >= count"
_PROMPT_OF = (
    "document.querySelectorAll('.jp-Notebook .jp-CodeCell')[%s].querySelector('.jp-InputArea-prompt').textContent"
)
_CHANGED = f"([index, before]) => {_PROMPT_OF % 'index'}.trim() !== before.trim()"
_ENDED = f"index => /^\\[\\d+\\]/.test({_PROMPT_OF % 'index'}.trim())"

ERROR = '.jp-OutputArea-output[data-mime-type="application/vnd.jupyter.error"]'


def run_notebook(page: Any, lab: Lab, name: str, seconds: float = 240) -> None:
    """Open the notebook and run its code cells one after the other, each when the one before has its number.

    A busy page loses commands and answers. A key that it lost is pressed again (`run_cell`); when a cell does not end
    in time, the notebook starts anew on a fresh kernel.

    Raises:
        RuntimeError: a cell ended in an error; holds its text.
        TimeoutError: not every cell ran; says what the page and the server show.
    """
    deadline = time.monotonic() + seconds
    for attempt in range(TRIES):
        if attempt:
            lab.restart_kernels()
        open_notebook(page, lab, name)
        try:
            for index in range(_code_cells(lab, name)):
                run_cell(page, index, seconds=max(1.0, min(CELL_S, deadline - time.monotonic())))
                if errors := page.locator(ERROR).all_inner_texts():
                    raise RuntimeError(f"a cell failed: {errors[0]}")
            return
        except PlaywrightTimeout:
            if time.monotonic() > deadline:
                break
    raise TimeoutError(f"not every cell ran: page {page.evaluate(PROMPTS)}, kernels {lab.kernel_states()}")


def _code_cells(lab: Lab, name: str) -> int:
    """How many code cells the notebook's file has."""
    return sum(cell["cell_type"] == "code" for cell in lab.ask("GET", f"contents/{name}")["content"]["cells"])


def open_notebook(page: Any, lab: Lab, name: str) -> None:
    """Open the notebook on a kernel that is there before the page is, and wait until both are ready."""
    if not any(session["path"] == name for session in lab.ask("GET", "sessions")):
        lab.start_kernel(name)
    page.goto(lab.notebook(name))
    page.wait_for_function(ALL_THERE, arg=_code_cells(lab, name), timeout=60_000)
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
