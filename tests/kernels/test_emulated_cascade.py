"""The engine's decodes below one long prefix, on emulated kernels: the reference's tokens, and a cascade indeed."""

from __future__ import annotations

import shutil
from collections import Counter
from typing import Any

import pytest
import torch

from tests.engine.graph_recorder import GraphRecorder, RecordingLauncher
from tests.kernels.test_emulated_engine import BOUND, SETTINGS, compare
from yaie_cuda import cascade
from yaie_cuda.emulator.launcher import EmulatorLauncher
from yaie_engine import LLM, SamplingParams, graphs
from yaie_engine.backends import cascade as engine_cascade
from yaie_engine.backends import choose
from yaie_engine.runner import ModelRunner

torch.set_num_threads(1)
pytestmark = [
    pytest.mark.skipif(shutil.which("g++") is None, reason="the emulator is built by g++"),
    pytest.mark.timeout(120),
]
STORY = " ".join(
    f"On day {day} the little red lamp told the engine what it had seen from the window of the notebook."
    for day in range(1, 12)
)
PROMPTS = [f"{STORY} {rest}" for rest in ("Then it", "In the end the", "Nobody knew")] + ["2 + 3 ="]
LENGTHS = (5, 8, 6, 7)
SIZES = {**SETTINGS, "num_blocks": 96, "max_num_batched_tokens": 256, "long_prefill_token_threshold": 0}


class CountingLauncher(EmulatorLauncher):
    """Counts launches by the kernel's name."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.counts: Counter[str] = Counter()

    def launch(self, specialisation: Any, grid: tuple[int, int, int], params: Any) -> None:
        self.counts[specialisation.kernel.name] += 1
        super().launch(specialisation, grid, params)


@pytest.fixture
def cheap_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model's prefixes are too short to pay for launches; here these are free, and there is no L2 cache."""
    monkeypatch.setattr(cascade, "EXTRA_LAUNCHES", 0.0)
    monkeypatch.setattr(cascade, "REREAD", 1.0)
    for cost in ("REPLAY_BYTES", "EAGER_BYTES"):
        monkeypatch.setattr(engine_cascade, cost, 0.0)


def greedy(max_tokens: int) -> SamplingParams:
    return SamplingParams(temperature=0, max_tokens=max_tokens, logprobs=2, ignore_eos=True)


@pytest.fixture(scope="module")
def reference() -> Any:
    """What the reference backend answers: the three with a common prefix end one after the other."""
    with LLM("tiny", attention_backend="reference", **SIZES) as llm:
        return llm.generate(PROMPTS, [greedy(count) for count in LENGTHS], use_tqdm=False)


def test_one_prefix_is_read_once_for_all(reference: Any, cheap_launches: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The decode kernel runs over the rest of each, the prefill kernel over the prefix, and both are merged.

    Two requests run; a third and another join when they decode, the former with a chunk beside their cascade.
    """
    launcher = CountingLauncher()
    monkeypatch.setattr(choose, "make_launcher", lambda *_: launcher)
    with LLM("tiny", attention_backend="emulated", **SIZES) as llm:
        launcher.counts.clear()
        handles = [llm.submit(prompt, greedy(count)) for prompt, count in zip(PROMPTS[:2], LENGTHS, strict=False)]
        next(iter(handles[0]))
        handles += [llm.submit(prompt, greedy(count)) for prompt, count in zip(PROMPTS[2:], LENGTHS[2:], strict=True)]
        ours = [handle.result(60) for handle in handles]
        layers = len(llm._engine.runner.cache.layers)
        cascades = launcher.counts["merge_attention_states"] // layers
        print(f"bound {BOUND}; {cascades} cascades in {llm.snapshot().step} steps: {dict(launcher.counts)}")
        assert cascades >= 4
        assert any(step.num_prefill_tokens > 1 and step.num_decode_tokens == 2 for step in llm.snapshot().steps)
        monkeypatch.setattr(cascade, "EXTRA_LAUNCHES", 24e6)  # as it is: not worth it any more
        launcher.counts.clear()
        plain = llm.generate(PROMPTS[:2], greedy(3), use_tqdm=False)
        assert launcher.counts["merge_attention_states"] == 0 < launcher.counts["paged_attention_decode"]
        llm.check()
    compare(ours, reference)
    assert [out.outputs[0].token_ids for out in plain] == [out.outputs[0].token_ids[:3] for out in ours[:2]]


def test_recorded_cascades_serve_later_groups(
    reference: Any, cheap_launches: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Grids and parameters are frozen at the capture, for four groups: fewer come, members leave, contexts grow."""
    recorder = GraphRecorder()
    monkeypatch.setattr(choose, "make_launcher", lambda *_: RecordingLauncher(EmulatorLauncher(), recorder))
    monkeypatch.setattr(graphs, "PATIENCE", 1)
    with LLM("tiny", attention_backend="emulated", **SIZES) as llm:
        runner = llm._engine.runner
        assert isinstance(runner, ModelRunner)
        llm._engine.call(lambda: runner.use_graphs(recorder.capture, 4, 512))
        ours = llm.generate(PROMPTS, [greedy(count) for count in LENGTHS], use_tqdm=False)
        decodes = runner._tier.graphs  # type: ignore[union-attr]
        assert decodes is not None and decodes.cascade_failure == ""
        print(decodes.cascades, recorder.replays)
        assert decodes.cascades == [(4, 4)] and recorder.replays >= 4
    compare(ours, reference)
