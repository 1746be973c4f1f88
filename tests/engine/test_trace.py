"""Traces of real models: their lines, their files, and the first module where two of them differ."""

from __future__ import annotations

import json
import math
import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.engine.conftest import Make
from tests.engine.fakes import LONG, greedy
from yaie_engine import LLM, ConfigError, RequestError
from yaie_engine.trace import (
    Trace,
    TraceLine,
    Tracer,
    check_environment,
    layer_numbers,
    read_trace,
    tracer_from_environment,
)
from yaie_engine.trace_compare import compare_traces

A = [5, 9, 7, 40, 33, 21]
PARAMS = greedy(4, ignore_eos=True)
LINE = TraceLine(1, 0, "model.layers.0", 0, (1, 4, 8), "float32", 1.0, 0.5, 0.25, 0, 0.1, "req-0 decode at 3")


def traced(llm: LLM, **settings: Any) -> Trace:
    """One request from an empty cache."""
    llm.reset()
    tracer = Tracer("about", **settings)
    llm.trace(tracer)
    llm.submit(A, PARAMS).result(LONG)
    llm.trace(None)
    return tracer.trace


def test_a_line_for_each_layer_and_a_bound_on_steps(llm: LLM) -> None:
    trace = traced(llm, num_steps=2)
    assert len(trace.steps) == 2
    names = [line.module for line in trace.lines if line.step == trace.steps[0]]
    assert [name for name in names if "layers" in name] == [f"model.layers.{i}" for i in range(3)]
    assert names[0] == "model.embed_tokens" and names[-1] == "lm_head"
    embedding = llm._engine.runner._weights.loaded.model.model.embed_tokens(torch.tensor([A])).detach()  # type: ignore[attr-defined]
    line = trace.lines[0]
    assert line.shape == (1, len(A), 64) and line.dtype == "float32"
    assert line.norm == pytest.approx(float(embedding.norm()), rel=1e-6)
    assert line.largest == pytest.approx(float(embedding.abs().max())) and line.num_bad == 0 and line.ms > 0
    text = str(trace)
    assert f"step {trace.steps[1]}: {line.requests.split()[0]} decode at {len(A)}" in text and "model.layers.2" in text
    assert not any(m._forward_hooks for m in llm._engine.runner._weights.loaded.model.modules())  # type: ignore[attr-defined]


def test_layers_and_modules_are_chosen(llm: LLM) -> None:
    trace = traced(llm, num_steps=1, layers=frozenset({1}), modules=True)
    names = {line.module for line in trace.lines}
    assert all(name.startswith("model.layers.1") for name in names)
    assert {"model.layers.1", "model.layers.1.self_attn.q_proj", "model.layers.1.mlp.down_proj"} <= names


def test_two_traces_name_the_first_module_that_differs(llm: LLM) -> None:
    before = traced(llm, modules=True)
    assert compare_traces(before, traced(llm, modules=True)).first is None
    weight = llm._engine.runner._weights.loaded.model.get_submodule("model.layers.1.mlp.up_proj").weight  # type: ignore[attr-defined]
    with torch.no_grad():
        weight.neg_()
        found = compare_traces(before, traced(llm, modules=True))
        weight.neg_()
    assert found.first is not None and found.pairs[found.first].left.module == "model.layers.1.mlp.up_proj"
    # A changed sign leaves norm and largest value as they are.
    assert found.pairs[found.first].left.norm == pytest.approx(found.pairs[found.first].right.norm)
    assert "first difference: model.layers.1.mlp.up_proj" in str(found) and "<-- first" in str(found)


def test_saved_and_read_again(llm: LLM, tmp_path: Path) -> None:
    trace = traced(llm, num_steps=2)
    path = trace.save(tmp_path / "one.trace")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_trace(path) == trace
    with pytest.raises(RequestError, match="cannot save"):
        trace.save(tmp_path / "nowhere" / "one")


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"yaie_trace": 2}', '{"yaie_trace": 1}\n[1]', '{"yaie_trace": 1}\n{"step": 1}', "\x00\xff" * 40,
     "[" * 100_000],
)  # fmt: skip
def test_files_that_are_no_traces(text: str, tmp_path: Path) -> None:
    path = tmp_path / "bad"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(RequestError, match="no trace"):
        read_trace(path)
    for other in (tmp_path, tmp_path / "absent"):
        with pytest.raises(RequestError, match="no file"):
            read_trace(other)


@pytest.mark.parametrize("change", [{"norm": "NaN"}, {"step": -1}, {"depth": 10**9}, {"shape": 3}, {"extra": 1}])
def test_values_of_a_file_are_checked(llm: LLM, tmp_path: Path, change: dict[str, Any]) -> None:
    path = traced(llm, num_steps=1).save(tmp_path / "one")
    head, line, *_ = path.read_text().splitlines()
    path.write_text(f"{head}\n{json.dumps({**json.loads(line), **change})}\n")
    with pytest.raises(RequestError, match="no trace"):
        read_trace(path)


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "3-2", "1,,2", "99999", "1-2-3"])
def test_wrong_lists_of_layers(text: str) -> None:
    with pytest.raises(RequestError, match="layers"):
        layer_numbers(text)


def test_lists_of_layers() -> None:
    assert layer_numbers("0, 2-4") == {0, 2, 3, 4}


def test_the_environment_asks_for_a_trace(
    make_llm: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "steps.trace"
    monkeypatch.setenv("YAIE_TRACE", str(path))
    make_llm().submit(A, PARAMS).result(LONG)
    assert len(read_trace(path).steps) >= 4
    monkeypatch.setenv("YAIE_TRACE", "1")
    make_llm().submit(A, PARAMS).result(LONG)
    assert "model.layers.2" in capsys.readouterr().err
    monkeypatch.setenv("YAIE_TRACE", str(tmp_path / "no" / "folder"))
    with pytest.raises(ConfigError, match="YAIE_TRACE"):
        make_llm()


@pytest.mark.parametrize(
    "change",
    [{"norm": 10**400}, {"step": 10**4000}, {"step": math.inf}, {"num_bad": 1e308}, {"shape": "12"}, {"shape": [-1]},
     {"module": 3}],
)  # fmt: skip
def test_figures_that_no_trace_has_are_refused(change: dict[str, Any], tmp_path: Path) -> None:
    path = Trace("x", [LINE]).save(tmp_path / "one")
    head, line = path.read_text().splitlines()
    path.write_text(f"{head}\n{json.dumps({**json.loads(line), **change})}\n")
    with pytest.raises(RequestError, match="no trace"):
        read_trace(path)


def test_a_terminal_obeys_nothing_of_a_file(tmp_path: Path) -> None:
    evil = "a\x1b[2J\n\u202e\ud800"
    path = Trace(evil, [replace(LINE, module=evil, requests=evil)]).save(tmp_path / "one")
    found = read_trace(path)
    assert all(line.isprintable() for line in str(found).splitlines()) and len(str(found).splitlines()) == 4


def test_a_trace_that_is_full_can_be_read_again(llm: LLM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("yaie_engine.trace.MAX_LINES", 7)
    trace = traced(llm, num_steps=5)
    assert len(trace.lines) == 7 and read_trace(trace.save(tmp_path / "full")) == trace


def test_a_trace_that_cannot_be_written_fails_no_request(llm: LLM, caplog: pytest.LogCaptureFixture) -> None:
    def full(lines: list[TraceLine]) -> None:
        raise OSError(28, "No space left on device")

    llm.trace(Tracer(told=full))
    output = llm.submit(A, PARAMS).result(LONG)
    llm.trace(None)
    assert output.error is None and caplog.text.count("not written any more") == 1


@pytest.mark.parametrize("wish", ["{}/no/folder", "{}", "{}/a\0b", "{}/" + "n" * 300])
def test_a_trace_file_is_tried_before_the_model_is_loaded(
    make_llm: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wish: str
) -> None:
    monkeypatch.setattr("yaie_engine.trace.os.environ", {"YAIE_TRACE": wish.format(tmp_path)})
    monkeypatch.setattr("yaie_engine.llm.load_model", lambda *_: pytest.fail("the model was loaded"))
    with pytest.raises(ConfigError, match="YAIE_TRACE"):
        make_llm()


def test_trying_a_trace_file_leaves_it_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, content in (("there", "older"), ("not there", None)):
        monkeypatch.setenv("YAIE_TRACE", str(tmp_path / name))
        if content:
            (tmp_path / name).write_text(content)
        check_environment()
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"there": "older"}


def test_a_file_that_others_could_read_is_private_before_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "one"
    path.write_text("older")
    path.chmod(0o666)
    Trace("x", [LINE]).save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and read_trace(path).lines == [LINE]
    assert Trace("x", [LINE]).save("/dev/null") == Path("/dev/null")
    assert stat.S_IMODE(Path("/dev/null").stat().st_mode) & 0o006, "what is no file keeps its mode"


def test_numbers_without_end_are_refused_or_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("YAIE_TRACE", "9" * 6000)
    assert tracer_from_environment("x") is not None
    for text in ("9" * 6000, "0-9999," * 100_000 + "1"):
        with pytest.raises(RequestError, match="layers"):
            layer_numbers(text)


def test_a_pipe_that_nobody_reads_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(RequestError, match="cannot save"):
        Trace("x", [LINE]).save(tmp_path / "pipe")
    monkeypatch.setenv("YAIE_TRACE", str(tmp_path / "pipe"))
    with pytest.raises(ConfigError, match="YAIE_TRACE"):
        check_environment()


def lines_of(tracer: Tracer | None, count: int = 1) -> None:
    """What the engine does after a forward."""
    assert tracer is not None
    tracer._fresh = [LINE] * count
    tracer._tell()


def test_a_file_is_written_through_what_was_opened_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path, other = tmp_path / "one", tmp_path / "other"
    monkeypatch.setenv("YAIE_TRACE", str(path))
    tracer = tracer_from_environment("x")
    lines_of(tracer)
    assert read_trace(path).lines == [LINE] and stat.S_IMODE(path.stat().st_mode) == 0o600
    path.rename(other)
    path.symlink_to(tmp_path / "victim")
    lines_of(tracer)
    assert len(read_trace(other).lines) == 2 and not (tmp_path / "victim").exists() and not caplog.text
    path.unlink()
    other.unlink()
    for _ in range(3):
        lines_of(tracer)
    assert caplog.text.count("not written any more") == 1 and not list(tmp_path.iterdir())


@pytest.mark.parametrize("end", ["leaves", "never reads"])
def test_the_reader_of_a_pipe_holds_up_nothing(
    end: str, make_llm: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    monkeypatch.setenv("YAIE_TRACE", str(path))
    llm = make_llm()
    assert llm.tracer is not None
    if end == "leaves":
        os.close(reader)
    else:
        lines_of(llm.tracer, 1000)  # more than fits
    assert llm.submit(A, PARAMS).result(LONG).error is None
    llm.close()
    assert caplog.text.count("not written any more") == 1
    if end != "leaves":
        os.close(reader)


def test_links_are_refused_and_nothing_is_made_where_they_lead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    link.symlink_to(target)
    monkeypatch.setenv("YAIE_TRACE", str(link))
    for content in (None, "older"):
        if content:
            target.write_text(content)
        for use in (check_environment, lambda: tracer_from_environment("x")):
            with pytest.raises(ConfigError, match="it is a link"):
                use()
        assert (target.read_text() if target.exists() else None) == content


@pytest.mark.parametrize("anomalies", [False, True])
def test_a_tracer_that_is_done_is_taken_off(llm: LLM, anomalies: bool) -> None:
    llm.detect_anomaly(anomalies)
    tracer = Tracer(num_steps=2)
    llm.trace(tracer)
    observed = llm._engine.runner._observers  # type: ignore[attr-defined]
    assert tracer in observed
    llm.submit(A, PARAMS).result(LONG)
    runner: Any = llm._engine.runner
    assert len(tracer.trace.steps) == 2 and tracer not in runner._observers and llm.tracer is tracer
    assert bool(runner._observers) is anomalies
    assert any(m._forward_hooks for m in runner._weights.loaded.model.modules()) is anomalies
    llm.detect_anomaly(False)
    assert not runner._observers and not any(m._forward_hooks for m in runner._weights.loaded.model.modules())
    llm.trace(None)
