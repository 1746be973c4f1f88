"""Pictures of the live views: the second notebook in JupyterLab, cell by cell, each view cut out while it lives."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from lab_page import ended, open_notebook, run_cell
from lab_server import Lab

VIEW = "section.y-view"
SLIDER = f"{VIEW} input[type=range]"
DRAWN = 1000  # milliseconds a view gets to draw what it was sent
RUNNING_MS = 300


@dataclass(frozen=True, slots=True)
class Shot:
    """A view: the line of the cell that shows it, and how many recorded steps before the newest it is shown at."""

    name: str
    line: str
    back: int = 0


SHOTS = (
    Shot("dashboard", "%yaie dashboard"),
    Shot("timeline", "%yaie timeline"),
    Shot("blocks", "%yaie blocks --live", back=40),
    Shot("tree", "%yaie tree --live", back=40),
    Shot("inspector", "%yaie inspect"),
    Shot("replay", "%yaie replay", back=60),
)
RUNNING = Shot("generation", "%%batch")
INSPECTED = f"{VIEW} [role=option]"


def take_views(page: Any, lab: Lab, notebook: Path, folder: Path, theme: str) -> list[Path]:
    """Run every code cell of the notebook and write `view-NAME-THEME.png` for each view into `folder`."""
    cells = [cell.source for cell in nbformat.read(notebook, as_version=4).cells if cell.cell_type == "code"]
    open_notebook(page, lab, notebook.name)
    written = []
    for index, source in enumerate(cells):
        element = run_cell(page, index, wait=not source.startswith(RUNNING.line))
        if source.startswith(RUNNING.line):
            written.append(_picture_while_running(page, element, folder, theme))
            ended(page, index)
    for shot in SHOTS:
        index = next(i for i, source in enumerate(cells) if source.startswith(shot.line))
        element = page.locator(".jp-Notebook .jp-CodeCell").nth(index)
        element.locator(VIEW).first.scroll_into_view_if_needed()
        page.wait_for_timeout(DRAWN)
        _prepare(page, element, shot)
        written.append(_picture(element, shot, folder, theme))
    return written


def _picture_while_running(page: Any, element: Any, folder: Path, theme: str) -> Path:
    """A view that is replaced within a second: the page is cut where it stands, without waiting for it to rest."""
    view = element.locator(VIEW).first
    view.wait_for()
    view.evaluate("view => view.scrollIntoView({block: 'center'})")
    page.wait_for_timeout(RUNNING_MS)
    target = folder / f"view-{RUNNING.name}-{theme}.png"
    page.screenshot(path=str(target), clip=view.bounding_box())
    return target


def _prepare(page: Any, element: Any, shot: Shot) -> None:
    """Go back in time, or to the token that was least sure of itself."""
    if shot.name == "inspector":
        element.locator(INSPECTED).nth(-20).hover()
    if shot.back:
        element.locator(SLIDER).first.focus()
        for _ in range(shot.back // 10):
            page.keyboard.press("Shift+ArrowLeft")
    page.wait_for_timeout(DRAWN)


def _picture(element: Any, shot: Shot, folder: Path, theme: str) -> Path:
    target = folder / f"view-{shot.name}-{theme}.png"
    element.locator(VIEW).first.screenshot(path=str(target))
    return target
