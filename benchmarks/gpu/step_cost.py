"""What a decode step costs the host while the device waits, with overlap and without: on a device that only sleeps.

The engine is the real one, down to the inputs of a captured step on the host. The device begins with a step when it is
queued and takes `DEVICE_MS`; the ids are there then, and it waits until the next step is queued. Times are those that
the engine's thread spends on a CPU, so that other work on the machine counts little.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from yaie_engine import LLM, SamplingParams
from yaie_engine.batch import FlatBatch, RunnerOutput
from yaie_engine.graphs import DecodeGraphs, DecodeInputs, Replay
from yaie_engine.observation import Observer
from yaie_engine.plan import StepPlan
from yaie_engine.sleep import Freed

from .models import SMALL, random_model, word_tokenizer

SEQUENCES = (1, 16, 64)
PROMPT_TOKENS, TOKENS, ROUNDS = 1024, 200, 3
DEVICE_MS = 4.0
CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class Cost:
    """Medians of a step in milliseconds of the host: while the device waits, and in all."""

    waiting: float
    whole: float


class SleepingDevice:
    """In the place of an engine's runner, and before its sampler. Takes down what the host does between two decodes."""

    def __init__(self, sample: Callable[..., Any], block_size: int, rows: int, width: int, seconds: float) -> None:
        self._sample, self._block_size, self._seconds = sample, block_size, seconds
        self._graphs = DecodeGraphs(self._logits, self._capture, rows, width, CPU)
        self._graphs.prepare()
        self._ready = self._through = 0.0
        self.waiting: list[float] = []
        self.starts: list[float] = []

    def observe(self, observers: tuple[Observer, ...]) -> None:
        """There is nothing to see."""

    def prepare(self, plan: StepPlan, prompt_logit_ids: Collection[int] = frozenset()) -> None:
        """Inputs of a graph on the host."""
        plan.inputs = batch = FlatBatch(plan, self._block_size, CPU, prompt_logit_ids)
        self._graphs.stage(batch)

    changed = False

    def renewed(self, begins: bool) -> bool:
        """No part is replaced."""
        return False

    def replays(self, num_decodes: int) -> bool:
        """Decodes are."""
        return num_decodes > 0

    def run(self, plan: StepPlan, prompt_logit_ids: Collection[int] = frozenset()) -> RunnerOutput:
        """Inputs, as far as they are not there; then the step is queued."""
        batch = plan.inputs
        if not isinstance(batch, FlatBatch):
            batch = FlatBatch(plan, self._block_size, CPU, prompt_logit_ids)
        decodes = all(entry.kind == "decode" for entry in plan.batch)
        rows = self._graphs.run(batch) if decodes else None
        if decodes:
            self.starts.append(time.thread_time())
            self.waiting.append(self.starts[-1] - self._through)
        self._ready = time.perf_counter() + self._seconds
        return batch.split(torch.zeros(len(plan.sampling), SMALL["vocab_size"]) if rows is None else rows)

    def start(self, logits: Tensor, rows: Any) -> Callable[[], Any]:
        """As `Sampler.start`; the ids are there when the device is through."""
        return partial(self._wait, self._sample(logits, rows))

    def sleep(self, level: int) -> Freed:
        """Nothing is given back."""
        return Freed()

    def wake(self) -> None:
        """Nothing is taken."""

    def close(self) -> None:
        """Nothing to free."""

    def _wait(self, tokens: Callable[[], Any]) -> Any:
        found = tokens()  # before the wait: a GPU has its own time for that
        time.sleep(max(0.0, self._ready - time.perf_counter()))
        self._through = time.thread_time()
        return found

    @staticmethod
    def _logits(inputs: DecodeInputs) -> Tensor:
        return torch.zeros(inputs.rows, SMALL["vocab_size"])

    @staticmethod
    def _capture(run: Callable[[], Tensor]) -> tuple[Tensor, Replay]:
        return run(), lambda: None


def costs(count: int, overlap: bool, tokens: int, prompt_tokens: int, device_ms: float) -> Cost:
    """Of decodes of `count` sequences that generate `tokens` tokens each."""
    longest = prompt_tokens + tokens
    shape = {**SMALL, "max_position_embeddings": longest}
    llm = LLM(
        random_model("llama", shape, torch.float32, CPU),
        tokenizer=word_tokenizer(SMALL["vocab_size"]),
        num_blocks=count * (longest // 16 + 1) + 8,
        max_num_seqs=count,
        max_num_batched_tokens=8192,
    )
    with llm:
        engine = llm._engine
        device = SleepingDevice(engine.sampler.start, 16, count, longest // 16 + 1, device_ms / 1000)
        engine.runner, engine.overlap = device, overlap
        engine.sampler.start = device.start  # type: ignore[method-assign]
        prompts = [[3 + (7 * row + 11 * i) % 300 for i in range(prompt_tokens)] for row in range(count)]
        llm.generate(prompts, SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True), use_tqdm=False)
    steps = [after - before for before, after in zip(device.starts, device.starts[1:], strict=False)]
    return Cost(statistics.median(device.waiting) * 1000, statistics.median(steps) * 1000)


def main(
    sequences: Collection[int] = SEQUENCES,
    tokens: int = TOKENS,
    prompt_tokens: int = PROMPT_TOKENS,
    device_ms: float = DEVICE_MS,
    rounds: int = ROUNDS,
) -> int:
    """Print one line per number of sequences: the best of some rounds, in turn and overlapped."""
    print(f"{'decodes, host milliseconds a step':<36}{'in turn':>16}{'overlapped':>20}")
    print(f"{f'(a step of the device: {device_ms} ms)':<36}{'waits':>8}{'in all':>8}{'waits':>12}{'in all':>8}")
    for count in sequences:
        found = []
        for overlap in (False, True):
            each = [costs(count, overlap, tokens, prompt_tokens, device_ms) for _ in range(rounds)]
            found.append(Cost(min(one.waiting for one in each), min(one.whole for one in each)))
        turn, over = found
        print(f"{count:<36}{turn.waiting:8.3f}{turn.whole:8.3f}{over.waiting:12.3f}{over.whole:8.3f}", flush=True)
    return 0
