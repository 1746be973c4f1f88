"""Pictures of the quickstart in JupyterLab, light and dark, for the README."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from lab_server import CHROMIUM_NAMES, Lab, running_lab
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "examples" / "01_quickstart.ipynb"
IMAGES = ROOT / "docs" / "images"
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}
VIEWPORT = {"width": 1200, "height": 1500}
ALL_CELLS_RAN = """() => {
  const prompts = [...document.querySelectorAll('.jp-Notebook .jp-CodeCell .jp-InputArea-prompt')];
  return prompts.length > 0 && prompts.every(prompt => /^\\[\\d+\\]/.test(prompt.textContent.trim()));
}"""


def chromium() -> str:
    """The browser's program, or one clear line."""
    found = next(filter(None, map(shutil.which, CHROMIUM_NAMES)), None)
    if found is None:
        sys.exit("screenshots: no Chromium found; on Debian: apt-get install chromium fonts-dejavu")
    return found


def run_all_cells(page: Any) -> None:
    """Run > Run All Cells, then wait until every cell has its number."""
    page.wait_for_selector('.jp-Notebook-ExecutionIndicator[data-status="idle"]', timeout=60_000)
    page.get_by_role("menuitem", name="Edit", exact=True).click()
    page.locator('[data-command="notebook:clear-all-cell-outputs"]').click()
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.locator('[data-command="runmenu:run-all"]').click()
    page.wait_for_function(ALL_CELLS_RAN, timeout=180_000)


def take(page: Any, lab: Lab, name: str, target: Path) -> list[str]:
    """Open a notebook, run it, save the picture; gives the requests that left this machine."""
    outside: list[str] = []

    def watch(request: Any) -> None:
        if not request.url.startswith((lab.url, lab.url.replace("http", "ws", 1), "data:", "blob:")):
            outside.append(request.url)

    page.on("request", watch)
    page.goto(lab.notebook(name))
    page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=60_000)
    run_all_cells(page)
    page.locator(".jp-WindowedPanel-outer").first.evaluate("panel => panel.scrollTo(0, 0)")
    page.locator("body").click(position={"x": 2, "y": 400})
    page.wait_for_timeout(1000)
    page.screenshot(path=str(target))
    return outside


def main() -> int:
    """Write both pictures; 1 when a page asked another machine for something."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    outside: list[str] = []
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as scratch:
        flags = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--disable-background-networking"]
        browser = playwright.chromium.launch(executable_path=chromium(), headless=True, args=flags)
        for name, theme in THEMES.items():
            folder = Path(scratch) / name
            root = folder / "notebooks"
            root.mkdir(parents=True)
            shutil.copyfile(SOURCE, root / SOURCE.name)
            with running_lab(root, folder, theme=theme, environment={"HF_HUB_OFFLINE": "1"}) as lab:
                page = browser.new_page(viewport=VIEWPORT, device_scale_factor=1.5)
                target = IMAGES / f"quickstart-{name}.png"
                outside += take(page, lab, SOURCE.name, target)
                page.close()
            print(f"screenshots: {target.relative_to(ROOT)} ({target.stat().st_size // 1024} kB)", flush=True)
        browser.close()
    for url in outside:
        print(f"screenshots: a page asked for {url}", file=sys.stderr)
    return 1 if outside else 0


if __name__ == "__main__":
    sys.exit(main())
