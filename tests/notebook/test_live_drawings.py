"""`%yaie tree --live` and `%yaie blocks --live` in a kernel, in a plain shell and in static mode."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from shell_run import Run

from tests.loading.folders import sound_folder

VIEWS = [("tree", "RadixTreeExplorer"), ("blocks", "KVBlockMap")]
WIDGET = "application/vnd.jupyter.widget-view+json"


@pytest.fixture(scope="module")
def kernel(real_kernel: Any) -> Any:
    """Its engine has answered a prompt."""
    real_kernel.run("%yaie load tiny --num-blocks 64 --force")
    cell = real_kernel.run("%%generate -m 4 --ignore-eos -o answer\nWhere is the door?")
    assert cell.status == "ok", (cell.stderr, cell.error)
    return real_kernel


@pytest.mark.parametrize(("name", "widget"), VIEWS)
def test_a_notebook_shows_the_widget_and_its_twin(kernel: Any, name: str, widget: str) -> None:
    cell = kernel.run(f"%yaie {name} --live --request answer")
    assert cell.status == "ok" and cell.result is None and cell.stderr == ""
    shown, twin = cell.displays
    assert shown["text/plain"] == f"<{widget}: tiny>"
    drawing = kernel.run(f"%yaie {name} --request answer").result
    assert twin["text/plain"] == drawing["text/plain"] and drawing["text/html"] in twin["text/html"]
    assert shown[WIDGET]["model_id"] in twin["text/html"]


@pytest.mark.parametrize(("name", "widget"), VIEWS)
def test_a_plain_shell_draws_as_ever(run: Run, name: str, widget: str) -> None:
    live, drawn = run(f"%yaie {name} --live"), run(f"%yaie {name}")
    assert str(live.result) == str(drawn.result) and live.err == drawn.err == ""
    assert widget not in live.out


@pytest.mark.parametrize("name", ["tree", "blocks"])
def test_static_mode_draws_as_ever(kernel: Any, name: str) -> None:
    kernel.run("import os; os.environ['YAIE_NOTEBOOK'] = 'static'")
    try:
        live, drawn = kernel.run(f"%yaie {name} --live"), kernel.run(f"%yaie {name}")
    finally:
        kernel.run("del os.environ['YAIE_NOTEBOOK']")
    assert live.result == drawn.result and not live.displays and live.stderr == ""


@pytest.mark.parametrize("name", ["tree", "blocks"])
def test_what_is_saved_is_what_was_last_seen(kernel: Any, name: str) -> None:
    cell = kernel.run(f"%yaie {name} --live")
    before = cell.displays[1]["text/plain"]
    kernel.run(f"%%generate -m 5 --ignore-eos\nHow far is the moon of {name}?")
    kernel.until(cell, lambda shown: shown.displays[1]["text/plain"] != before)
    drawing = kernel.run(f"%yaie {name}").result
    assert cell.displays[1]["text/plain"] == drawing["text/plain"]


def test_a_request_that_nobody_knows_is_said_before_anything_is_shown(kernel: Any) -> None:
    cell = kernel.run("%yaie tree --live --request req-999")
    assert not cell.displays and "req-999" in cell.stderr


def test_kept_states_are_drawn_where_a_view_could_not_follow_them(kernel: Any, tmp_path: Path) -> None:
    kernel.run(f"%yaie load {sound_folder(tmp_path / 'lfm2', 'lfm2')} --as other --num-blocks 64")
    words = " ".join(f"w{number}" for number in range(5, 40))
    cell = kernel.run(f"%%generate --engine other -m 4 --ignore-eos\n{words}")
    assert cell.status == "ok", cell.stderr
    cell = kernel.run("%yaie tree --live --engine other")
    assert not cell.displays and "2 states, " in cell.result["text/plain"] and "not live" in cell.stdout
    assert "Kept beside the blocks: 2 states" in kernel.run("%yaie blocks --engine other").result["text/plain"]
    status = kernel.run("%yaie status --engine other").stdout
    assert re.search(r"states +2 states in memory, 0.0 of at most", status), status
    assert kernel.run("%yaie unload other").status == "ok"
