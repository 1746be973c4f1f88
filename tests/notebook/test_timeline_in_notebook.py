"""`%yaie timeline` in a plain shell and in a Jupyter kernel: forms, files, mistakes, help and completion."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from shell_run import Run

EMPTY = "No step recorded yet. Run a %%generate cell."


@pytest.fixture(scope="module")
def kernel(real_kernel: Any) -> Any:
    """Its engine has answered two prompts that begin alike, and was asked for a third."""
    real_kernel.run("%yaie load tiny --num-blocks 256 --force")
    for name, tail in (("one", "Where is the door?"), ("two", "When does it open?")):
        cell = real_kernel.run(f"%%generate -m 4 --ignore-eos -o {name}\nYou are the assistant of a library. {tail}")
        assert cell.status == "ok", (cell.stderr, cell.error)
    return real_kernel


def test_before_anything_ran(run: Run) -> None:
    assert run("%yaie timeline").out.strip().endswith(EMPTY)
    assert "from is 3, but no step is recorded yet" in run("%yaie timeline --from 3").err


def test_the_drawing_says_what_history_says(kernel: Any) -> None:
    cell = kernel.run("%yaie timeline --format svg")
    assert cell.status == "ok" and set(cell.result) == {"text/plain", "text/html", "image/svg+xml"}
    records = kernel.value(
        "[(r.request_id, len(r.prompt_token_ids), r.num_cached_tokens, len(r.output_token_ids[0]))"
        " for r in session.get().llm.history()]"
    )
    rows = {line.split()[0]: line.split()[-4:] for line in cell.out.partition("\nStep")[0].splitlines() if line.strip()}
    for name, prompt, cached, output in records[-2:]:
        assert rows[name] == ["length", str(prompt), str(cached), str(output)]
        assert f">{name}<" in cell.result["text/html"]
    assert records[-1][2] > 0 and "You are" in cell.result["text/html"]
    budget = kernel.value("session.get().llm._engine.scheduler.limits.max_num_batched_tokens")
    assert f" of {budget}" in cell.out


def test_a_notebook_shows_the_live_view_and_its_twin(kernel: Any) -> None:
    cell = kernel.run("%yaie timeline")
    assert cell.status == "ok" and cell.result is None
    widget, twin = cell.displays
    assert "application/vnd.jupyter.widget-view+json" in widget and widget["text/plain"] == "<SchedulerTimeline: tiny>"
    still = kernel.run("%yaie timeline --format svg").result
    assert twin["text/plain"] == still["text/plain"] and still["text/html"] in twin["text/html"]
    assert widget["application/vnd.jupyter.widget-view+json"]["model_id"] in twin["text/html"]


def test_forms_and_windows(kernel: Any) -> None:
    assert set(kernel.run("%yaie timeline --format text").result) == {"text/plain"}
    last = kernel.value("session.get().llm.snapshot().step")
    assert f"steps {last - 1} to {last}" in kernel.run("%yaie timeline --steps 2 --format text").out
    assert f"steps {last - 2} to {last - 1}" in kernel.run(f"%yaie timeline --steps 2 --from {last - 2}").out
    named = kernel.run("%yaie timeline --request two").out
    assert kernel.value("two.request_id") in named and kernel.value("one.request_id") not in named


def test_static_mode_has_no_times(kernel: Any) -> None:
    assert " ms" in kernel.run("%yaie timeline --format svg").out
    kernel.run("import os; os.environ['YAIE_NOTEBOOK'] = 'static'")
    first, second = (kernel.run("%yaie timeline").result for _ in range(2))
    kernel.run("del os.environ['YAIE_NOTEBOOK']")
    assert " ms" not in first["text/plain"] and first == second


def test_the_value_is_a_drawing(kernel: Any, tmp_path: Path) -> None:
    kernel.run("t = %yaie timeline --format svg")
    kernel.run(f"t.save({str(tmp_path / 't.svg')!r})")
    assert (tmp_path / "t.svg").read_text(encoding="utf-8").startswith("<svg")
    assert kernel.value("t.text == str(t) and t.svg.startswith('<svg')")
    cell = kernel.run(f"%yaie timeline --save {tmp_path / 't.txt'}")
    assert f"Saved to {tmp_path / 't.txt'}." in cell.stdout and cell.result
    assert (tmp_path / "t.txt").read_text(encoding="utf-8") == cell.out


def test_a_trace(kernel: Any, tmp_path: Path) -> None:
    cell = kernel.run(f"%yaie timeline --trace {tmp_path / 'trace.json'}")
    assert cell.status == "ok" and cell.result is None and "ui.perfetto.dev" in cell.stdout
    events = json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))["traceEvents"]
    forwards = [event for event in events if event["name"] == "forward" and event["ph"] == "X"]
    assert len(forwards) == len(kernel.value("[s.step for s in session.get().llm.snapshot().steps]"))
    ends = {event["name"] for event in events if event["ph"] == "i"}
    assert "length" in ends


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--steps 0", "steps is 0: use 1 to 600"),
        ("--steps x", "--steps 'x' is not a number"),
        ("--from 99999", "are recorded"),
        ("--request nobody", "request 'nobody' is not in the steps shown"),
        ("--format png", "not one of svg, text"),
        ("--save x.png", "cannot save as '.png': use .svg, .html or .txt"),
        ("--trace /no/such/folder/x.json", "No such file"),
    ],
)
def test_mistakes_are_one_line(kernel: Any, options: str, said: str) -> None:
    cell = kernel.run(f"%yaie timeline {options}")
    shown = cell.stderr or "\n".join(cell.error["traceback"])
    assert cell.status == "error" and said in shown and shown.strip().count("\n") == 0


def test_help_and_completion(kernel: Any) -> None:
    text = kernel.run("%yaie help timeline").stdout
    for flag in ("--steps", "--from", "--request", "--format", "--save", "--trace", "--engine"):
        assert flag in text
    assert kernel.complete("%yaie timel") == ["timeline"]
    assert kernel.complete("%yaie timeline --t") == ["--trace"]
    assert kernel.complete("%yaie timeline --format s") == ["svg"]
    assert "timeline" in kernel.run("%yaie help").stdout
