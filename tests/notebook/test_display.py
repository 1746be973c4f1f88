"""What a notebook is sent: one display per cell, not too often, escaped, and nothing that needs a kernel later."""

from __future__ import annotations

import json
from typing import Any

import pytest

from yaie_engine.outputs import CompletionOutput, RequestMetrics, RequestOutput
from yaie_engine.params import SamplingParams
from yaie_magic.completion import Completion
from yaie_magic.render import bundle, static_mode, summary
from yaie_magic.run import Run

HOSTILE = "<script>alert(1)</script> & </pre><img src=x onerror=y> \x1b[31m {braces} $x"


def completion(text: str, format: str = "text", n: int = 1) -> list[Completion]:
    run = Run.__new__(Run)
    run.__setstate__(
        {"_request_id": "r", "prompt": "p", "params": SamplingParams(n=n), "cancelled": False, "_texts": [[]] * n}
    )
    outputs = tuple(CompletionOutput(i, text, (1, 2, 3), finish_reason="stop") for i in range(n))
    metrics = RequestMetrics(ttft_s=0.05, tpot_s=0.01, total_s=0.1)
    run.output = RequestOutput("r", "p", (7, 8), outputs, True, 1, metrics=metrics)
    return [Completion(run, index, format) for index in range(n)]


def test_model_text_is_escaped() -> None:
    markup = bundle(completion(HOSTILE))["text/html"]
    assert "<script" not in markup and "<img" not in markup and "&lt;script&gt;" in markup
    assert markup.count("</pre>") == 1


def test_formats() -> None:
    assert set(bundle(completion("# head", "markdown"))) == {"text/plain", "text/markdown"}
    assert bundle(completion('{"a": [1]}', "json"))["application/json"] == {"a": [1]}
    assert "application/json" not in bundle(completion("no json", "json"))
    for text in ("[" * 100_000, "[NaN]", '{"a": -Infinity}', "[" + "9" * 5000 + "]"):
        assert "application/json" not in bundle(completion(text, "json")), text[:10]
    assert "widget" not in json.dumps(bundle(completion("x")))


def test_several_choices_are_numbered() -> None:
    plain = bundle(completion("x", n=2))["text/plain"]
    assert "[1 of 2]\nx" in plain and "[2 of 2]\nx" in plain


def test_figures_have_times_except_in_static_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    (one,) = completion("x")
    assert summary(one) == "3 tokens · stop · 1 of 2 prompt tokens cached"
    monkeypatch.setenv("YAIE_NOTEBOOK", "static")
    assert static_mode() and "ms" not in bundle([one])["text/plain"]
    monkeypatch.delenv("YAIE_NOTEBOOK")
    assert "first token 50 ms · 100.0 tok/s" in bundle([one])["text/plain"]


def test_a_notebook_under_comparison_counts_as_static(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("YAIE_NOTEBOOK", raising=False)
    assert not static_mode()
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "examples/01_quickstart.ipynb::Cell 3 (call)")
    assert static_mode()


def test_a_cell_is_one_display_updated_at_most_30_times_a_second(fake_kernel: Any) -> None:
    fake_kernel.run("SPEED.step = 0.001")
    cell = fake_kernel.run("%%generate -m 600 -o r\nfast")
    seconds = cell.finished - cell.started
    print(f"{cell.updates} updates in {seconds:.2f} s")
    assert len(cell.displays) == 1 and cell.stdout == "" and cell.stderr == ""
    assert 1 < cell.updates <= seconds * 30 + 2
    assert cell.streamed.startswith("w0 w1 w2 ") and "w300 " in cell.streamed
    assert [said["seq"] for said in cell.said] == list(range(1, len(cell.said) + 1))
    assert cell.displays[0]["text/plain"].count("w599 ") == 1
    assert "text/html" in cell.displays[0] and "\n" not in cell.out
    assert not any("widget" in kind for kind in cell.displays[0]), "the saved notebook needs no kernel"


def test_a_front_end_without_widgets_gets_text_at_most_20_times_a_second(fake_kernel: Any) -> None:
    fake_kernel.run("import os; os.environ['YAIE_NOTEBOOK'] = 'text'; SPEED.step = 0.001")
    cell = fake_kernel.run("%%generate -m 600\nfast")
    batch = fake_kernel.run("%%batch -m 3\na\n---\nb")
    fake_kernel.run("del os.environ['YAIE_NOTEBOOK']")
    assert not cell.said and not batch.said and len(cell.displays) == len(batch.displays) == 1
    assert 1 < cell.updates <= (cell.finished - cell.started) * 20 + 2
    assert cell.shown[2].startswith("w0 w1 ") and "w599 " in cell.shown[-1]
    assert "[2 of 2]" in batch.shown[-1]


def test_what_a_widget_is_told_is_what_the_static_form_says(fake_kernel: Any) -> None:
    cell = fake_kernel.run("%%generate -m 200 -n 2 -o rs\nfast")
    rows: dict[int, dict[str, Any]] = {}
    for said in cell.said:
        for index, fields, _ in said["rows"]:
            rows.setdefault(index, {}).update(fields)
    assert cell.said[-1]["tally"] in ("2 choices · 2 finished", "2 choices · 2 running")
    assert "2 choices · 2 finished" in cell.displays[0]["text/html"]
    assert set(rows) == {0, 1} and all(row["bar"][2] > 100 for row in rows.values())


def test_quiet_shows_nothing_once(fake_kernel: Any) -> None:
    cell = fake_kernel.run("%%generate -m 3 -q\nhi")
    assert not cell.displays and cell.out == "" and cell.stdout == ""
    assert fake_kernel.value("str(Out[max(Out)])") == "w0 w1 w2 "
    assert fake_kernel.run("_yaie").out.startswith("<Completion: 3 tokens")


def test_a_quiet_result_in_an_expression_shows_later(fake_kernel: Any) -> None:
    fake_kernel.run("x = get_ipython().run_cell_magic('generate', '-q -m 3', 'hi')")
    cell = fake_kernel.run("x")
    assert "Completion" in cell.text


def test_show_is_rich_and_repr_is_short(fake_kernel: Any) -> None:
    fake_kernel.run("%%generate -m 3 -q -o r\nhi")
    cell = fake_kernel.run("r.show()")
    assert cell.displays[0]["text/plain"].startswith("w0 w1 w2") and "<pre" in cell.displays[0]["text/html"]


def test_static_mode_is_plain_text_once_and_the_same_each_time(fake_kernel: Any) -> None:
    fake_kernel.run("import os; os.environ['YAIE_NOTEBOOK'] = 'static'")
    codes = [
        "%yaie restart",
        "%%generate -m 3\nhi",
        "%%generate -m 3 -n 2\nhi",
        "%%chat -m 3 --new\nhi",
        "%%batch -m 3\na\n---\nb",
        "%yaie status",
    ]
    shown = []
    for _ in range(2):
        cells = [fake_kernel.run(code) for code in codes]
        assert all(not cell.displays and not cell.stderr and cell.error is None for cell in cells)
        shown.append([(cell.stdout, cell.out) for cell in cells])
    fake_kernel.run("del os.environ['YAIE_NOTEBOOK']")
    assert shown[0] == shown[1]
    assert shown[0][1] == ("w0 w1 w2 \n", "<Completion: 3 tokens · length · 0 of 2 prompt tokens cached>")
    assert shown[0][4][0] == "[1 of 2]\nw0 w1 w2 \n[2 of 2]\nw0 w1 w2 \n"


@pytest.mark.parametrize(
    ("code", "offered"),
    [
        ("%yaie l", {"load"}),
        ("%yaie load --d", {"--detached", "--device", "--dtype"}),
        ("%yaie load --dtype b", {"bfloat16"}),
        ("s = %yaie stat", {"status"}),
        ("%yaie help tr", {"trace", "tree"}),
        ("%yaie tree --format p", {"png"}),
        ("%yaie status --engine ", {"default"}),
        ("%%generate --max", {"--max-tokens"}),
        ("%%generate -m 5 --no-sk", {"--no-skip-special-tokens"}),
        ("%%generate --format j", {"json"}),
        ("%%chat --sess", {"--session"}),
        ("%gen", {"%%generate"}),
    ],
)
def test_completion(fake_kernel: Any, code: str, offered: set[str]) -> None:
    assert set(fake_kernel.complete(code)) == offered


def test_completion_leaves_other_code_alone(fake_kernel: Any) -> None:
    fake_kernel.run("%config Completer.use_jedi = False")
    assert "print" in fake_kernel.complete("prin")
    assert fake_kernel.complete("%%generate\nprin") == ["print"]


def test_question_mark_shows_the_help_text(fake_kernel: Any) -> None:
    from yaie_magic.cell_options import cell_parser

    shown = fake_kernel.inspect("%%generate")
    assert all(line.strip() in shown for line in cell_parser("generate").format_help().splitlines())
    assert fake_kernel.run("%%generate --help\nx").stdout.strip() == cell_parser("generate").format_help().strip()


def test_threads_may_run_cells_too(fake_kernel: Any) -> None:
    code = (
        "def work(): results.append(get_ipython().run_cell_magic('generate', '-q -m 3', 'hi'))\n"
        "results = []\n"
        "threads = [threading.Thread(target=work) for _ in range(3)]\n"
        "[t.start() for t in threads]; [t.join() for t in threads]"
    )
    assert fake_kernel.run(code).error is None
    assert fake_kernel.value("[str(r) for r in results]") == ["w0 w1 w2 "] * 3
