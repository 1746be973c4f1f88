"""Pictures of the quickstart and of the live views in JupyterLab, light and dark, for README and docs."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from chromium import NoBrowser, headless_chromium
from lab_page import run_notebook
from lab_server import Lab, running_lab
from view_pictures import take_views

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "examples" / "01_quickstart.ipynb"
VIEWS = ROOT / "examples" / "02_inside_the_engine.ipynb"
IMAGES = ROOT / "docs" / "images"
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}
VIEWPORT = {"width": 1200, "height": 2100}
FIRST_HEADING = "2. Generate"


def copy_without_outputs(source: Path, target: Path) -> None:
    """A notebook as it is before anything ran."""
    notebook = nbformat.read(source, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    nbformat.write(notebook, target)


def watch_requests(page: Any, lab: Lab) -> list[str]:
    """A list that fills with the addresses outside this machine that the page asks for."""
    outside: list[str] = []
    inside = (lab.url, lab.url.replace("http", "ws", 1), "data:", "blob:")

    def watch(request: Any) -> None:
        if not request.url.startswith(inside):
            outside.append(request.url)

    page.on("request", watch)
    return outside


def take(page: Any, lab: Lab, name: str, target: Path) -> list[str]:
    """Open a notebook, run it, save the picture; gives the requests that left this machine."""
    outside = watch_requests(page, lab)
    run_notebook(page, lab, name)
    heading = page.locator(".jp-Notebook h2", has_text=FIRST_HEADING).first
    heading.evaluate("heading => heading.scrollIntoView({block: 'start'})")
    page.wait_for_timeout(1000)
    page.screenshot(path=str(target))
    return outside


def main() -> int:
    """Write all pictures; 1 when a page asked another machine for something."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    outside: list[str] = []
    with headless_chromium() as browser, tempfile.TemporaryDirectory() as scratch:
        for name, theme in THEMES.items():
            folder = Path(scratch) / name
            root = folder / "notebooks"
            root.mkdir(parents=True)
            for notebook in (SOURCE, VIEWS):
                copy_without_outputs(notebook, root / notebook.name)
            with running_lab(root, folder, theme=theme, environment={"HF_HUB_OFFLINE": "1"}) as lab:
                page = browser.new_page(viewport=VIEWPORT, device_scale_factor=1)
                written = [IMAGES / f"quickstart-{name}.png"]
                outside += take(page, lab, SOURCE.name, written[0])
                written += take_views(page, lab, root / VIEWS.name, IMAGES, name)
                page.close()
            for target in written:
                print(f"screenshots: {target.relative_to(ROOT)} ({target.stat().st_size // 1024} kB)", flush=True)
    for url in outside:
        print(f"screenshots: a page asked for {url}", file=sys.stderr)
    return 1 if outside else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except NoBrowser as missing:
        sys.exit(f"screenshots: {missing}")
