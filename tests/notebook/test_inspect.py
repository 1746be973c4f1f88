"""`%yaie inspect` in a plain shell and in a Jupyter kernel: names, choices, history, mistakes, forms."""

from __future__ import annotations

from typing import Any

import pytest
from shell_run import Run

from yaie_magic.inspector import Inspector

LINES = 5


def test_names_choices_and_branches(real: Run) -> None:
    real("%%generate -m 12 -t 0 --logprobs 5 -o one -q\nOnce upon a time there was a fox")
    found = real("%yaie inspect one")
    assert isinstance(found.result, Inspector)
    first, *lines = found.out[found.out.index("Tokens of") :].strip().splitlines()
    assert first.startswith("Tokens of req-0 · 12 tokens · length · 0 of ")
    assert "mean log probability" in first and len(lines) == LINES and all(" bits" in line for line in lines)
    assert real("%yaie inspect").out[found.out.index("Tokens of") :] == found.out[found.out.index("Tokens of") :]

    real("inspector = one.inspect()\nrow = inspector.answers[0].rows[4]")
    real("other = [c.token_id for c in row.candidates if c.token_id != one.tokens[4]][0]")
    real("branch = inspector.branch(4, other).wait()")
    assert real("_yaie is branch").result is True and real("inspector.branches == [branch]").result is True
    assert real("branch.prompt[-1] == other and branch.usage.cached == len(branch.prompt) - 1").result is True
    assert real("print(inspector)").out.count("Tokens of") == 2 and "branch at token 5" in real.out

    real("%%generate -m 4 -t 0 -n 2 -o two -q\nOnce upon a time")
    assert "two holds 2 results; choose one: --choice 1 to 2" in real("%yaie inspect two").err
    assert "--choice 3: two holds 2, so 1 to 2" in real("%yaie inspect two --choice 3").err
    assert "--choice x: two holds 2" in real("%yaie inspect two --choice x").err
    second = real("%yaie inspect two --choice 2")
    assert "/1 · 4 tokens" in second.out
    assert "Log probabilities were not recorded. Run with --logprobs 5." in second.out


def test_request_ids_history_and_mistakes(real: Run) -> None:
    assert "no cell has run yet" in real("%yaie inspect").err
    real("%%generate -m 3 -t 0 --logprobs 1 -o kept -q\nOnce upon a time")
    assert "mean log probability" in real("%yaie inspect req-0").out
    real("from yaie_magic.session import session\nllm = session.get().llm")
    real("llm.generate('Once upon', use_tqdm=False)")
    assert "The history keeps no log probabilities; inspect the result itself." in real("%yaie inspect req-1").out
    assert "the history keeps no sampling parameters" in str(real("_.branch(0, 300)").error)
    assert "neither a result nor a request that is remembered; did you mean 'req-0'?" in real("%yaie inspect reg-0").err
    assert "is a int, not the result of a cell" in real("x = 3\n%yaie inspect x").err
    assert "unknown option '--entropi'; did you mean '--entropy'?" in real("%yaie inspect req-0 --entropi").err
    assert "unknown subcommand 'inspekt'" in real("%yaie inspekt").err
    shown = real("%yaie inspect --help").out
    assert "--choice" in shown and "--entropy" in shown and "a result, or a request id" in shown


@pytest.fixture(scope="module")
def kernel(real_kernel: Any) -> Any:
    """Its engine has told a story with log-probabilities."""
    real_kernel.run("%yaie load tiny --num-blocks 256 --force")
    cell = real_kernel.run("%%generate -m 8 -t 0 --logprobs 3 -o story\nOnce upon a time")
    assert cell.status == "ok", (cell.stderr, cell.error)
    return real_kernel


def test_a_notebook_gets_the_widget_and_its_static_form(kernel: Any) -> None:
    cell = kernel.run("%yaie inspect story")
    assert cell.status == "ok", (cell.stderr, cell.error)
    forms = cell.displays
    assert "application/vnd.jupyter.widget-view+json" in forms[0]
    assert "data-yaie-twin=" in forms[1]["text/html"] and "y-ins-tok" in forms[1]["text/html"]
    assert forms[1]["text/plain"].startswith("Tokens of req-")


def test_options_are_completed(kernel: Any) -> None:
    assert {"--entropy", "--engine"} <= set(kernel.complete("%yaie inspect --e"))


def test_static_mode_makes_no_widget_and_says_the_same_twice(kernel: Any) -> None:
    kernel.run("import os; os.environ['YAIE_NOTEBOOK'] = 'static'")
    cells = [kernel.run("%yaie inspect story --entropy") for _ in range(2)]
    kernel.run("del os.environ['YAIE_NOTEBOOK']")
    forms = [cell.displays for cell in cells]
    assert forms[0] == forms[1] and len(forms[0]) == 1 and set(forms[0][0]) == {"text/plain", "text/html"}
    assert "Entropy, at least" in forms[0][0]["text/html"] and "<script" not in forms[0][0]["text/html"]
