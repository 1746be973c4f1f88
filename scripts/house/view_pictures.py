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
    """A view, the line of the cell that shows it, and whether it is shown at the step at which the pool is fullest."""

    name: str
    line: str
    at_work: bool = False


SHOTS = (
    Shot("dashboard", "%yaie dashboard"),
    Shot("timeline", "%yaie timeline"),
    Shot("blocks", "%yaie blocks --live", at_work=True),
    Shot("tree", "%yaie tree --live", at_work=True),
    Shot("inspector", "%yaie inspect"),
    Shot("replay", "%yaie replay", at_work=True),
)
RUNNING = Shot("generation", "%%batch")
INSPECTED = f"{VIEW} [role=option]"
GO = """(slider, step) => { slider.value = step; slider.dispatchEvent(new Event("input")); }"""
# The step after which most blocks are held, shared ones above all, by the legend of the block map.
FULLEST = """async slider => {
  const figure = words => Number([...slider.closest("section").querySelectorAll(".y-map-entry")].find(
    entry => entry.children[1].textContent.startsWith(words)).lastChild.textContent.replaceAll(",", ""));
  let best = [0, 0];
  for (let step = Number(slider.min); step <= Number(slider.max); step++) {
    slider.value = step;
    slider.dispatchEvent(new Event("input"));
    await new Promise(requestAnimationFrame);
    const held = figure("Held") + 2 * figure("Shared") + figure("Evicted");
    if (held > best[0]) best = [held, step];
  }
  return best[1];
}"""


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
    fullest = 0
    for shot in SHOTS:
        index = next(i for i, source in enumerate(cells) if source.startswith(shot.line))
        element = page.locator(".jp-Notebook .jp-CodeCell").nth(index)
        element.locator(VIEW).first.scroll_into_view_if_needed()
        page.wait_for_timeout(DRAWN)
        if shot.name == "blocks":
            fullest = element.locator(SLIDER).first.evaluate(FULLEST)
        _prepare(page, element, shot, fullest)
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


def _prepare(page: Any, element: Any, shot: Shot, fullest: int) -> None:
    """Go back in time, or to the token that was least sure of itself."""
    if shot.name == "inspector":
        element.locator(INSPECTED).nth(-20).hover()
    if shot.at_work:
        element.locator(SLIDER).first.evaluate(GO, fullest)
    page.wait_for_timeout(DRAWN)


def _picture(element: Any, shot: Shot, folder: Path, theme: str) -> Path:
    target = folder / f"view-{shot.name}-{theme}.png"
    element.locator(VIEW).first.screenshot(path=str(target))
    return target
