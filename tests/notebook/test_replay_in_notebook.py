"""`%yaie replay` in a plain shell and in a Jupyter kernel: the view and its twin, files, mistakes, help, completion."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

VIEW = "application/vnd.jupyter.widget-view+json"


@pytest.fixture(scope="module")
def kernel(real_kernel: Any) -> Any:
    """Its engine has answered one prompt."""
    real_kernel.run("%yaie load tiny --num-blocks 256 --force")
    cell = real_kernel.run("%%generate -m 6 --ignore-eos -q -o one\nWhere is the door?")
    assert cell.status == "ok", (cell.stderr, cell.error)
    return real_kernel


@pytest.fixture(scope="module")
def saved(kernel: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "run.json"
    cell = kernel.run(f"%yaie replay --save {path}")
    assert cell.status == "ok" and f"Saved 6 steps to {path}" in cell.stdout and not cell.displays
    return path


def test_a_notebook_gets_the_view_and_its_twin(kernel: Any) -> None:
    cell = kernel.run("%yaie replay")
    assert cell.status == "ok" and cell.result is None
    view, twin = cell.displays
    assert view["text/plain"] == "<Replay: tiny>" and VIEW in view
    assert f'data-yaie-twin="{view[VIEW]["model_id"]}"' in twin["text/html"]
    assert "step 6, the newest of 6 steps" in twin["text/plain"] and "Where is the door?" in twin["text/html"]
    assert "<script" not in twin["text/html"]


def test_the_twin_says_what_the_drawings_say(kernel: Any) -> None:
    twin = kernel.run("%yaie replay").displays[1]["text/plain"]
    for subcommand in ("tree", "blocks", "timeline"):
        assert kernel.run(f"%yaie {subcommand} --format text").out in twin


def test_static_mode_makes_no_widget_and_gives_no_times(kernel: Any) -> None:
    kernel.run("import os; os.environ['YAIE_NOTEBOOK'] = 'static'")
    first, second = (kernel.run("%yaie replay") for _ in range(2))
    kernel.run("del os.environ['YAIE_NOTEBOOK']")
    assert first.result == second.result and not first.displays
    assert " ms" not in first.out and VIEW not in first.result


def test_a_saved_run_is_shown_without_its_engine(kernel: Any, saved: Path) -> None:
    document = json.loads(gzip.decompress(saved.read_bytes()))
    assert document["engine"]["state"] == "recorded" and len(document["steps"]) == 6
    cell = kernel.run(f"%yaie replay --load {saved}")
    assert cell.displays[0]["text/plain"] == "<Replay: tiny>"
    assert "step 6, the newest of 6 steps" in cell.displays[1]["text/plain"]
    text = kernel.run(f"%yaie replay --load {saved} --format text").stdout
    assert text.strip() == cell.displays[1]["text/plain"].strip()


def test_a_plain_shell_gets_the_drawing(run: Any, saved: Path) -> None:
    assert "step 6, the newest of 6 steps" in run(f"%yaie replay --load {saved}").out


def test_a_damaged_file_is_one_line_that_says_what_is_wrong(kernel: Any, saved: Path, tmp_path: Path) -> None:
    document = json.loads(gzip.decompress(saved.read_bytes()))
    document["steps"][2]["batch"] = [["<script>", "think", 1]]
    broken = tmp_path / "broken.json"
    broken.write_text(json.dumps(document))
    cell = kernel.run(f"%yaie replay --load {broken}")
    shown = cell.stderr or "\n".join(cell.error["traceback"])
    assert cell.status == "error" and "steps[2].batch[0][1] is 'think': use one of prefill, decode" in shown
    assert shown.strip().count("\n") == 0 and not cell.displays


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--load /no/such/file.json", "No such file"),
        ("--save /no/such/folder/x.json", "No such file"),
        ("--save /dev/null", "it is there already; --force writes over it"),
        ("--force", "--force writes over the file of --save"),
        ("--load x.json --save y.json", "--load shows a file"),
        ("--load x.json --engine default", "--load shows a file"),
        ("--format png", "not one of svg, text"),
        ("--engine nobody", "no engine is called 'nobody'"),
        ("--steps 3", "--steps"),
    ],
)
def test_mistakes_are_one_line(kernel: Any, options: str, said: str) -> None:
    cell = kernel.run(f"%yaie replay {options}")
    shown = cell.stderr or "\n".join(cell.error["traceback"])
    assert cell.status == "error" and said in shown and shown.strip().count("\n") == 0


def test_help_and_completion(kernel: Any) -> None:
    text = kernel.run("%yaie help replay").stdout
    for flag in ("--save", "--load", "--format", "--engine"):
        assert flag in text
    assert kernel.complete("%yaie repl") == ["replay"]
    assert kernel.complete("%yaie replay --l") == ["--load"]
    assert kernel.complete("%yaie replay --format s") == ["svg"]


def test_unload_frees_the_engine_of_a_view_that_is_shown(kernel: Any) -> None:
    kernel.run("%yaie load tiny --num-blocks 64 --as other")
    assert len(kernel.run("%yaie replay --engine other").displays) == 2
    kernel.run("import gc, weakref; watch = weakref.ref(session.get('other').llm._engine)")
    assert kernel.run("%yaie unload other").status == "ok"
    assert kernel.value("(gc.collect(), watch() is None)[1]")
    assert kernel.value("sum(thread.name == 'yaie-publisher' for thread in threading.enumerate())") == 1
