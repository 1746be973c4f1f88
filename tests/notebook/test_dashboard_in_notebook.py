"""`%yaie dashboard` in a plain shell and in a Jupyter kernel: live view, twin, forms, files, mistakes, help."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from shell_run import Run

VIEW = "application/vnd.jupyter.widget-view+json"


@pytest.fixture(scope="module")
def kernel(real_kernel: Any) -> Any:
    """Its engine has answered a prompt."""
    real_kernel.run("%yaie load tiny --num-blocks 256 --force")
    cell = real_kernel.run("%%generate -m 4 --ignore-eos\nYou are the assistant of a library.")
    assert cell.status == "ok", (cell.stderr, cell.error)
    return real_kernel


def test_a_shell_shows_the_drawing(run: Run) -> None:
    assert run("%yaie dashboard").out.strip().endswith("No step recorded yet. Run a %%generate cell.")


def test_a_notebook_shows_the_live_view_and_its_twin(kernel: Any) -> None:
    cell = kernel.run("%yaie dashboard")
    assert cell.status == "ok" and cell.result is None
    widget, twin = cell.displays
    assert VIEW in widget and widget["text/plain"] == "<EngineDashboard: tiny>"
    still = kernel.run("%yaie dashboard --format svg").result
    assert set(still) == {"text/plain", "text/html", "image/svg+xml"}
    lines = [text.splitlines() for text in (twin["text/plain"], still["text/plain"])]
    # Memory is measured each time.
    assert lines[0][0] == lines[1][0] and lines[0][2:] == lines[1][2:] and len(lines[0]) == 8
    assert " MiB" in lines[0][1] and widget[VIEW]["model_id"] in twin["text/html"]


def test_figures_are_those_of_status(kernel: Any) -> None:
    counters = kernel.value("[session.get().llm.snapshot().counters.generated_tokens, session.get().llm.step]")
    text = kernel.run("%yaie dashboard --format text")
    assert set(text.result) == {"text/plain"}
    assert f"output tokens {counters[0]}" in text.out and f"steps 1 to {counters[1]}" in text.out


def test_static_mode_is_the_same_each_time(kernel: Any) -> None:
    kernel.run("import os; os.environ['YAIE_NOTEBOOK'] = 'static'")
    first, second = (kernel.run("%yaie dashboard") for _ in range(2))
    kernel.run("del os.environ['YAIE_NOTEBOOK']")
    assert first.result == second.result and not first.displays
    assert " ms" not in first.out and "MiB" not in first.out


def test_it_is_saved(kernel: Any, tmp_path: Path) -> None:
    cell = kernel.run(f"%yaie dashboard --save {tmp_path / 'd.svg'}")
    assert f"Saved to {tmp_path / 'd.svg'}." in cell.stdout and cell.result and not cell.displays
    assert (tmp_path / "d.svg").read_text(encoding="utf-8").startswith("<svg")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--format png", "not one of svg, text"),
        ("--save x.png", "cannot save as '.png': use .svg, .html or .txt"),
        ("--save /no/such/folder/x.svg", "No such file"),
        ("--engine nobody", "nobody"),
    ],
)
def test_mistakes_are_one_line(kernel: Any, options: str, said: str) -> None:
    cell = kernel.run(f"%yaie dashboard {options}")
    shown = cell.stderr or "\n".join(cell.error["traceback"])
    assert cell.status == "error" and said in shown and shown.strip().count("\n") == 0


def test_help_and_completion(kernel: Any) -> None:
    text = kernel.run("%yaie help dashboard").stdout
    assert all(flag in text for flag in ("--format", "--save", "--engine"))
    assert kernel.complete("%yaie dashb") == ["dashboard"]
    assert "dashboard" in kernel.run("%yaie help").stdout
