"""Run the first notebook here, its text streaming to this terminal, or open a copy of it in JupyterLab."""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "examples" / "01_quickstart.ipynb"
OUTPUT = ROOT / "build" / "quickstart"
LAB = ROOT / "build" / "lab"


class StreamingClient(NotebookClient):  # type: ignore[misc]
    """Runs a notebook and repeats what its cells print while they print it."""

    within_line = False  # the last text had no line break at its end

    def process_message(self, msg: dict[str, Any], cell: Any, cell_index: int) -> Any:
        """Show streamed and returned text at once, then keep it like any client."""
        content = msg.get("content", {})
        if msg["msg_type"] == "stream":
            print(content["text"], end="", flush=True)
            self.within_line = not content["text"].endswith("\n")
        elif msg["msg_type"] in ("execute_result", "display_data"):
            self.begin_line()
            print(content["data"].get("text/plain", ""), flush=True)
        return super().process_message(msg, cell, cell_index)

    def begin_line(self) -> None:
        """End a line that was left open."""
        if self.within_line:
            print()
        self.within_line = False

    def announce(self, cell: Any, cell_index: int) -> None:
        """Print a cell's source after an empty line; code is quoted."""
        self.begin_line()
        if cell.cell_type == "code":
            bold, plain = ("\033[1m", "\033[0m") if sys.stdout.isatty() else ("", "")
            print("\n" + bold + "\n".join(f"> {line}" for line in cell.source.splitlines()) + plain, flush=True)
        else:
            print("\n" + cell.source, flush=True)


def run_notebook(notebook: Any) -> bool:
    """Execute every cell; False when one raised."""
    client = StreamingClient(
        notebook,
        timeout=300,
        kernel_name="python3",
        resources={"metadata": {"path": str(OUTPUT)}},
        store_widget_state=False,
    )
    client.on_cell_start = client.announce
    try:
        client.execute()
    except CellExecutionError as error:
        print(f"quickstart: a cell failed: {error.ename}: {error.evalue}", file=sys.stderr)
        return False
    return True


def write_pages(notebook: Any) -> Path:
    """The executed notebook and the same as one HTML page, under build/."""
    from nbconvert import HTMLExporter

    nbformat.write(notebook, OUTPUT / SOURCE.name)
    page, _ = HTMLExporter().from_notebook_node(notebook)
    target = OUTPUT / f"{SOURCE.stem}.html"
    target.write_text(page, encoding="utf-8")
    return target


def run_here() -> int:
    """The whole quickstart in this terminal."""
    os.environ.setdefault("YAIE_NOTEBOOK", "static")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    OUTPUT.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    notebook = nbformat.read(SOURCE, as_version=4)
    finished = run_notebook(notebook)
    page = write_pages(notebook)
    print(f"\nquickstart: {time.perf_counter() - start:.1f} s; the page with all outputs: {page.relative_to(ROOT)}")
    print("quickstart: next: ./scripts/quickstart --lab opens this notebook in JupyterLab")
    return 0 if finished else 1


def open_lab(arguments: list[str]) -> int:
    """JupyterLab on a copy, so that running cells never changes the checkout. An edited copy is kept."""
    LAB.mkdir(parents=True, exist_ok=True)
    for source in sorted((ROOT / "examples").glob("*.ipynb")):
        if not (LAB / source.name).exists():
            shutil.copyfile(source, LAB / source.name)
    print(f"quickstart: JupyterLab works on copies in {LAB.relative_to(ROOT)}/; delete one to get it fresh", flush=True)
    command = [sys.executable, "-m", "jupyterlab", f"--ServerApp.root_dir={LAB}", *arguments, str(LAB / SOURCE.name)]
    os.execv(sys.executable, command)  # noqa: S606


def main(arguments: list[str]) -> int:
    """`--lab` opens JupyterLab with the options that follow it; nothing runs the notebook here."""
    if arguments[:1] == ["--lab"]:
        return open_lab(arguments[1:])
    return run_here()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
