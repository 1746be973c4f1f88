"""`%yaie insights` in a Jupyter kernel: its words, its JSON, help and completion."""

from __future__ import annotations

import json
from typing import Any

import pytest

HEAD = "You are the assistant of a small library. Answer in one sentence. Name the shelf, the row and the title. "


@pytest.fixture(scope="module")
def kernel(real_kernel: Any) -> Any:
    """Its engine has answered two prompts that begin alike; the second one was not allowed to use the first."""
    real_kernel.run("%yaie load tiny --num-blocks 256 --force")
    for options, tail in (("", "Where is the door?"), ("--cache-salt other", "When does it open?")):
        cell = real_kernel.run(f"%%generate -m 4 -t 0 {options}\n{HEAD}{tail}")
        assert cell.status == "ok", (cell.stderr, cell.error)
    return real_kernel


def test_findings_as_text_and_html(kernel: Any) -> None:
    cell = kernel.run("%yaie insights")
    text, html = cell.result["text/plain"], cell.result["text/html"]
    assert cell.status == "ok" and text.startswith("Insights · steps 1 to ")
    assert "Equal prompts were kept apart by their cache salt" in text
    assert "When does it open?" in text and "Where is the door?" in text
    assert "yaie-drawing insights" in html and "Equal prompts were kept apart by their cache salt" in html
    assert "first token, median" in text and "other" not in cell.stderr


def test_json_is_a_list_and_prints_as_json(kernel: Any) -> None:
    cell = kernel.run("%yaie insights --json")
    found = json.loads(cell.out)
    assert set(cell.result) == {"text/plain"}
    assert {"bound", "first-token", "reuse-salt", "budget-use", "batch", "hit-rate"} <= {each["id"] for each in found}
    kernel.run("found = %yaie insights --json")
    assert kernel.value("[f['id'] for f in found]") == [each["id"] for each in found]


def test_static_mode_is_the_same_twice(kernel: Any) -> None:
    kernel.run("import os; os.environ['YAIE_NOTEBOOK'] = 'static'")
    try:
        first, second = kernel.run("%yaie insights"), kernel.run("%yaie insights")
        assert first.out == second.out and " ms" not in first.out and "hit rate" in first.out
    finally:
        kernel.run("del os.environ['YAIE_NOTEBOOK']")


def test_what_a_closed_engine_did_is_no_finding_of_the_next(kernel: Any) -> None:
    kernel.run("%yaie unload")
    cell = kernel.run("%yaie insights")
    assert cell.status == "error" and "no engine" in (cell.stderr + str(cell.error)).lower()


def test_help_and_completion(fake_kernel: Any) -> None:
    assert "insights" in fake_kernel.complete("%yaie ins")
    assert {"--json", "--engine"} <= set(fake_kernel.complete("%yaie insights --"))
    said = fake_kernel.run("%yaie insights --help").text
    assert "--json" in said and "a list of dicts" in said
    assert "insights" in fake_kernel.run("%yaie help").text
