"""Execute the example notebooks in static mode and save their outputs in place."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
KEPT_METADATA = ("kernelspec",)


def save_outputs(path: Path) -> None:
    """Run one notebook and write it back without what differs between two runs."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(notebook, timeout=300, kernel_name="python3", store_widget_state=False, record_timing=False)
    client.execute(cwd=str(EXAMPLES))
    notebook.metadata = {name: notebook.metadata[name] for name in KEPT_METADATA if name in notebook.metadata}
    notebook.metadata["language_info"] = {"name": "python"}
    for cell in notebook.cells:
        join_streams(cell)
    nbformat.write(notebook, path)


def join_streams(cell: Any) -> None:
    """Text that was streamed in pieces is saved as one piece."""
    joined: list[Any] = []
    for output in cell.get("outputs", []):
        same = joined and output.output_type == "stream" and joined[-1].output_type == "stream"
        if same and joined[-1].name == output.name:
            joined[-1].text += output.text
        else:
            joined.append(output)
    if "outputs" in cell:
        cell.outputs = joined


def main(names: list[str]) -> int:
    """All notebooks, or those that a name picks."""
    os.environ.update({"YAIE_NOTEBOOK": "static", "HF_HUB_OFFLINE": "1"})
    chosen = [
        path for path in sorted(EXAMPLES.glob("*.ipynb")) if not names or any(name in path.name for name in names)
    ]
    for path in chosen:
        start = time.perf_counter()
        save_outputs(path)
        print(f"{path.relative_to(ROOT)}: {time.perf_counter() - start:.1f} s, {path.stat().st_size // 1024} kB")
    return 0 if chosen else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
