"""A forward by torch.compile: the answers of an eager engine, three graphs for all steps, what stands in the way."""

from __future__ import annotations

import gc
import logging
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.conftest import CHEAP, Make
from tests.engine.fakes import greedy, tokens
from yaie_engine import LLM, ConfigError, EngineConfig, compiled, loader, opaque
from yaie_engine.compiled import CompiledForward
from yaie_engine.config import EngineConfig as Config
from yaie_engine.loader import load_model
from yaie_engine.runner import ModelRunner
from yaie_engine.tiers.flat import FlatTier

PROMPTS = [list(range(3, 3 + length)) for length in (37, 21, 1, 5, 16)]
Answers = list[tuple[int, ...]]


def as_traced(graph: Any, inputs: list[Any]) -> Callable[..., Any]:
    """What dynamo traced, run by torch: all but the C++ of inductor."""
    traced: Callable[..., Any] = graph.forward
    return traced


def tier_of(llm: LLM) -> FlatTier:
    runner = llm._engine.runner
    assert isinstance(runner, ModelRunner) and isinstance(runner._tier, FlatTier)
    return runner._tier


def compiled_of(llm: LLM) -> CompiledForward:
    found = tier_of(llm).compiled
    assert found is not None, llm.snapshot().model.reason
    return found


def found(llm: LLM, count: int = len(PROMPTS)) -> Answers:
    outputs = llm.generate(PROMPTS[:count], [greedy(6 + 3 * number) for number in range(count)], use_tqdm=False)
    llm.check()
    return [tuple(tokens(output)) for output in outputs]


@pytest.fixture(scope="module")
def expected(folder: Path) -> Answers:
    with LLM(str(folder), **CHEAP) as llm:
        return found(llm)


@pytest.fixture(scope="module")
def made(folder: Path) -> Iterator[LLM]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "inductor", as_traced)
        with LLM(str(folder), **CHEAP, enable_torch_compile=True) as llm:
            yield llm


@pytest.mark.full
def test_three_graphs_serve_every_step(made: LLM, expected: Answers) -> None:
    """Chunks, mixed steps, decodes that grow fewer, a warm prefix, logits of a prompt."""
    for _ in range(2):
        assert found(made) == expected
    assert found(made, 1) == expected[:1]
    assert len(made.score(PROMPTS[0])) == len(PROMPTS[0])
    forward = compiled_of(made)
    assert forward.num_graphs == 3 == len(forward.compiled) and not forward.failure
    assert "torch.compile: 3 graphs for any number of rows, made in" in made.snapshot().model.reason


@pytest.mark.full
def test_what_is_compiled_calls_no_module_and_a_hook_gets_every_step(made: LLM, expected: Answers) -> None:
    made.reset()
    seen: list[int] = []
    layer = tier_of(made)._call.model.model.layers[0]
    hook = layer.register_forward_hook(lambda module, args, out: seen.append(args[0].shape[1]))
    assert found(made, 1) == expected[:1] and sum(seen) == len(PROMPTS[0]) + 5
    hook.remove()
    assert found(made, 1) == expected[:1] and sum(seen) == len(PROMPTS[0]) + 5
    made.detect_anomaly()
    assert found(made, 1) == expected[:1]
    made.detect_anomaly(False)
    assert not compiled_of(made).failure


@pytest.mark.full
def test_nothing_is_compiled_after_load(
    made: LLM, folder: Path, caplog: pytest.LogCaptureFixture, make_llm: Make
) -> None:
    """The model is changed in a way that its graphs do not cover: the change counts, and the steps run eagerly."""
    other = make_llm()
    for llm in (made, other):
        llm.reset()
        for layer in tier_of(llm)._call.model.model.layers:
            layer.self_attn.scaling *= 4
    with caplog.at_level(logging.WARNING, "yaie"):
        assert found(made) == found(other)
    forward = compiled_of(made)
    assert forward.failure and forward.num_graphs == 3
    warned = [record for record in caplog.records if "steps run without torch.compile" in record.message]
    assert len(warned) == 1


@pytest.mark.full
def test_packed_products_are_called_from_the_graph(
    folder: Path, monkeypatch: pytest.MonkeyPatch, make_llm: Make, expected: Answers
) -> None:
    calls: list[int] = []

    def counting(graph: Any, inputs: list[Any]) -> Callable[..., Any]:
        calls.append(sum("yaie_engine.call" in str(node.target) for node in graph.graph.nodes))
        return as_traced(graph, inputs)

    monkeypatch.setattr(compiled, "inductor", counting)
    monkeypatch.setattr(loader, "worth_it", lambda device, size: True)
    llm = make_llm(enable_torch_compile=True)
    if "packed" not in llm.snapshot().model.reason:
        pytest.skip("torch has no packed layout here")
    assert found(llm) == expected
    layers = len(tier_of(llm)._call.model.model.layers)
    assert all(count > layers for count in calls) and len(calls) == 3, "attention alone was left out of the graph"


def fails(graph: Any, inputs: list[Any]) -> Callable[..., Any]:
    raise RuntimeError("no C++ compiler was found\nlong trace")


def lies(graph: Any, inputs: list[Any]) -> Callable[..., Any]:
    return lambda *given: tuple(each.flip(-1) for each in graph.forward(*given))


@pytest.mark.full
@pytest.mark.parametrize(
    ("compiler", "reason"), [(fails, "RuntimeError: no C++ compiler was found"), (lies, "logits differ by")]
)
def test_what_cannot_be_compiled_runs_eagerly_and_says_why(
    compiler: Any, reason: str, monkeypatch: pytest.MonkeyPatch, make_llm: Make, expected: Answers
) -> None:
    monkeypatch.setattr(compiled, "inductor", compiler)
    llm = make_llm(enable_torch_compile=True)
    told = llm.snapshot().model.reason
    assert f"not compiled: {reason}" in told and "long trace" not in told
    assert tier_of(llm).compiled is None and found(llm, 2) == expected[:2]


@pytest.mark.full
@pytest.mark.parametrize("closes", [True, False], ids=["closed", "dropped"])
def test_progress_is_told_and_nothing_is_kept_after_the_end(
    closes: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model is dropped where the engine cannot be started after its load."""
    monkeypatch.setattr(compiled, "inductor", as_traced)
    before, said = len(opaque._FUNCTIONS), list[tuple[str, float | None]]()
    loaded = load_model(Config(model=str(folder), enable_torch_compile=True), progress=lambda *a: said.append(a))
    assert [share for what, share in said if what == "compiling"] == [0, 1 / 3, 2 / 3]
    assert len(opaque._FUNCTIONS) > before
    model = weakref.ref(loaded.model)
    if closes:
        loaded.close()
        assert len(opaque._FUNCTIONS) == before
    del loaded
    gc.collect()
    assert model() is None, "a graph keeps the weights"
    assert len(opaque._FUNCTIONS) == before


@pytest.mark.parametrize(
    "other", [{"enforce_eager": True}, {"attention_backend": "cpu"}, {"quantization": "int8"}], ids=str
)
def test_it_takes_the_place_of_kernels(other: dict[str, Any]) -> None:
    name, value = next(iter(other.items()))
    with pytest.raises(ConfigError, match=f"enable_torch_compile and {name}={value!r}: .*leave one of them out"):
        EngineConfig(enable_torch_compile=True, **other)


@pytest.mark.full
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_inductor_gives_the_tokens_of_an_eager_engine(dtype: str, make_llm: Make) -> None:
    eager, fast = (make_llm(dtype=dtype, enable_torch_compile=wanted) for wanted in (False, True))
    reason = fast.snapshot().model.reason
    assert "torch.compile: 3 graphs" in reason, reason
    if dtype == "float32":
        assert found(fast) == found(eager)
    assert compiled_of(fast).num_graphs == 3 and not compiled_of(fast).failure
