"""Why a model is served as it is: what snapshots say of it is true when they are made, not when it was loaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.engine.conftest import Make
from tests.engine.test_cpu_graphs import found, graphs_of
from yaie_cuda.cpu import build
from yaie_engine import LLM, EngineConfig, compiled
from yaie_engine.breach import _report
from yaie_engine.runner import ModelRunner
from yaie_engine.tiers.flat import FlatTier
from yaie_engine.view import take_increment
from yaie_magic.session import LoadedEngine
from yaie_magic.subcommands.status import report


def told(llm: LLM) -> str:
    """What every view says alike."""
    reason = llm.snapshot().model.reason
    assert take_increment(llm._engine, 0).model.reason == reason
    assert _report(llm._engine, [])["model"]["reason"] == reason
    return reason


def fail() -> None:
    raise RuntimeError("planted")


def a_replay_fails(llm: LLM) -> None:
    graphs = graphs_of(llm)
    assert graphs is not None

    def spoil() -> None:
        graphs._graphs = {rows: replace(graph, replay=fail) for rows, graph in graphs._graphs.items()}

    llm._engine.call(spoil)


def a_record_fails(llm: LLM) -> None:
    graphs = graphs_of(llm)
    assert graphs is not None

    def spoil() -> None:
        graphs.drop()
        graphs._capture = lambda run: fail()  # type: ignore[assignment, return-value]

    llm._engine.call(spoil)


def graphs_are_needed_no_more(llm: LLM) -> None:
    runner = llm._engine.runner
    assert isinstance(runner, ModelRunner) and isinstance(runner._tier, FlatTier)
    for layer in runner._tier._call.model.model.layers:
        layer.self_attn.scaling *= 4


needs_kernels = pytest.mark.skipif(bool(build.unbuildable_reason()), reason=build.unbuildable_reason())


@pytest.mark.parametrize(
    ("happens", "now"),
    [
        pytest.param(a_replay_fails, "decodes run without graphs: a replay of ", marks=needs_kernels),
        pytest.param(a_record_fails, "decodes run without graphs: the capture of ", marks=needs_kernels),
    ],
)
def test_records_that_are_given_up_show(make_llm: Make, happens: Callable[[LLM], None], now: str) -> None:
    llm = make_llm(attention_backend="cpu")
    found(llm, 2)
    before = told(llm)
    assert "without graphs" not in before
    happens(llm)
    found(llm, 2)
    assert now in told(llm) and told(llm).startswith(before)
    assert now in " ".join(report(LoadedEngine("default", EngineConfig(), llm, "tiny"), llm.snapshot()).split())
    llm.sleep(1)
    assert told(llm) == before, "asleep there are no records"
    llm.wake_up()
    assert told(llm) == before, "they are made anew"


def test_a_switch_from_compiled_to_eager_shows(make_llm: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "inductor", lambda graph, inputs: graph.forward)
    llm = make_llm(enable_torch_compile=True)
    assert "torch.compile: 3 graphs" in told(llm)
    graphs_are_needed_no_more(llm)
    found(llm, 2)
    assert "steps run without torch.compile: a step needed a graph" in told(llm) and "3 graphs" not in told(llm)


def test_a_closed_engine_says_what_was_true_at_last(make_llm: Make) -> None:
    llm = make_llm()
    before = told(llm)
    llm.close()
    assert llm.snapshot().model.reason == before
