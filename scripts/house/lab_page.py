"""A notebook on a page of JupyterLab, run from its first cell to its last."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lab_server import Lab
from playwright.sync_api import TimeoutError as PlaywrightTimeout

TRIES = 3
MOST_DIALOGS = 10  # one after the other
CELL_S = 90.0  # seconds a cell may take
IDLE = '.jp-Notebook-ExecutionIndicator[data-status="idle"]'
# A page says "idle" before it knows of a kernel, too; a cell that is run then opens the dialog "Select Kernel".
READY = f"""() => document.querySelector('{IDLE}')
  && ![...document.querySelectorAll('.jp-KernelName, .jp-Toolbar-kernelName')].some(
    name => ["", "No Kernel"].includes(name.textContent.trim()))"""
DIALOG = "dialog.jp-Dialog"
CHOOSE = "Select Kernel"  # the one question that has to be answered with yes
PROMPTS = (
    "[...document.querySelectorAll('.jp-Notebook .jp-CodeCell .jp-InputArea-prompt')].map(p => p.textContent.trim())"
)
ALL_THERE = "count => document.querySelectorAll('.jp-Notebook .jp-CodeCell .cm-content').length >= count"
_PROMPT_OF = (
    "document.querySelectorAll('.jp-Notebook .jp-CodeCell')[%s].querySelector('.jp-InputArea-prompt').textContent"
)
_CHANGED_OR_ASKED = (
    f"([index, before]) => {_PROMPT_OF % 'index'}.trim() !== before.trim() || document.querySelector('{DIALOG}')"
)
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
    page.wait_for_function(READY, timeout=60_000)


def answer_dialogs(page: Any) -> list[str]:
    """Close what the page asks, so that it takes clicks again; says on stderr what that was, and gives it back.

    A question is answered with its button for "no", but the one for a kernel with its proposal.

    Raises:
        PlaywrightTimeout: a dialog does not close, or they come back without end.
    """
    answered: list[str] = []
    while (dialog := page.locator(DIALOG).last).count():
        if len(answered) == MOST_DIALOGS:
            raise PlaywrightTimeout(f"a dialog comes back: {answered[-1]}")
        words = " / ".join(dialog.inner_text(timeout=5000).split("\n"))
        no = dialog.locator("button.jp-mod-reject")
        button = no if no.count() and not words.startswith(CHOOSE) else dialog.locator("button.jp-mod-accept")
        button.last.click(timeout=5000)
        dialog.wait_for(state="detached", timeout=5000)
        print(f"lab_page: answered a dialog: {words}", file=sys.stderr)
        answered.append(words)
    return answered


def run_cell(page: Any, index: int, seconds: float = 60, wait: bool = True) -> Any:
    """Run one cell and give back its element: once it has begun, or with `wait` once it has ended.

    A dialog in the way is answered (`answer_dialogs`), a key that the page lost is pressed again.

    Raises:
        PlaywrightTimeout: it did not; says which dialogs were there.
    """
    cell = page.locator(".jp-Notebook .jp-CodeCell").nth(index)
    prompt = cell.locator(".jp-InputArea-prompt")
    before = prompt.inner_text()
    answered: list[str] = []
    problem = ""
    for _ in range(TRIES):
        try:
            answered += answer_dialogs(page)
            cell.locator(".cm-content").click(timeout=10_000)
            if prompt.inner_text() != before:  # the key before was not lost, it only took its time
                break
            page.keyboard.press("Control+Enter")
            _begin(page, index, before, answered)
            break
        except PlaywrightTimeout as late:
            problem = str(late)
    else:
        raise PlaywrightTimeout(f"cell {index} did not begin, dialogs answered: {answered}: {problem}")
    if wait:
        ended(page, index, seconds)
    return cell


def _begin(page: Any, index: int, before: str, answered: list[str]) -> None:
    """Wait until a cell has begun; what is asked meanwhile is answered, upon which the page itself goes on."""
    for _ in range(TRIES):
        page.wait_for_function(_CHANGED_OR_ASKED, arg=[index, before], timeout=5000)
        if not (new := answer_dialogs(page)):
            return
        answered += new
    raise PlaywrightTimeout("it asks again and again")


def ended(page: Any, index: int, seconds: float = 60) -> None:
    """Wait until a cell has its number."""
    try:
        page.wait_for_function(_ENDED, arg=index, timeout=seconds * 1000)
    except PlaywrightTimeout as late:
        shown = page.locator(DIALOG).all_inner_texts()
        raise PlaywrightTimeout(f"cell {index} did not end in {seconds:.0f} s, dialogs open: {shown}") from late


def save(page: Any, path: Path, holds: Callable[[Any], bool], seconds: float = 30) -> Any:
    """Save the notebook until what is in its file `holds`, and give that back.

    Raises:
        TimeoutError: it did not in time.
    """
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        answer_dialogs(page)
        page.keyboard.press("Escape")
        page.keyboard.press("Control+s")
        for _ in range(20):
            page.wait_for_timeout(100)
            try:
                book = json.loads(path.read_text(encoding="utf-8"))
            except ValueError:  # it is being written
                continue
            if holds(book):
                return book
    raise TimeoutError(f"{path.name} was not saved as it should be in {seconds:.0f} s")
