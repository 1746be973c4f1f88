"""What the runner needs from a tier, and how a model's forward is called."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from yaie_engine.batch import RunnerOutput
from yaie_engine.errors import YaieError
from yaie_engine.kv_cache import KVCache
from yaie_engine.observation import ForwardRows, Observation, Observer
from yaie_engine.plan import ScheduledSequence, StepPlan

CACHE_NAMES = ("cache", "past_key_values", "cache_params", "state")


class Tier(Protocol):
    """Runs the forward of one step. `attention_calls` counts per layer the paged attention calls of the last step."""

    attention_calls: dict[int, int]

    def observe(self, observers: Sequence[Observer]) -> None:
        """Let these look at every forward, which then runs eagerly; without any, nobody does."""
        ...

    def run(self, plan: StepPlan, prompt_ids: Collection[int] = ()) -> RunnerOutput:
        """The logits of `plan`; the copies have been made."""
        ...

    def release(self, seq_ids: Collection[int]) -> None:
        """Forget whatever is kept for these sequences."""
        ...

    def close(self) -> None:
        """Drop every reference to model and cache."""
        ...


class ForwardCall:
    """A causal model's forward with the argument names that it understands."""

    def __init__(self, model: Any) -> None:
        self.model = model
        names = inspect.signature(model.forward).parameters
        self.picks_rows = "logits_to_keep" in names
        self.takes_positions = "position_ids" in names
        self.cache_name = next((name for name in CACHE_NAMES if name in names), "")
        self.observation: Observation | None = None

    def observe(self, observers: Sequence[Observer]) -> None:
        """Let these look at the model's forward, and nobody else."""
        if self.observation is not None:
            self.observation.close()
        self.observation = Observation(self.model, observers) if observers else None

    def logits(self, input_ids: Tensor, position_ids: Tensor, keep: Tensor | None, **more: Any) -> Tensor:
        """Logits [rows, vocab] of input_ids [1, num_tokens]; `keep` int64 picks rows, None takes all."""
        return self._rows(self._call(input_ids, position_ids, keep, more), keep)

    def chunk(self, entry: ScheduledSequence, cache: Any, keep: Tensor, device: torch.device) -> tuple[Tensor, Any]:
        """Logits of one sequence's chunk, and the cache that has its K and V (or state); None: the model makes one."""
        ids = torch.tensor([entry.seq.token_ids[entry.start : entry.stop]], device=device)
        positions = torch.arange(entry.start, entry.stop, device=device).unsqueeze(0)
        keep = keep.to(device)
        more = {"use_cache": True} if cache is None else {"use_cache": True, self.cache_name: cache}
        outputs = self._call(ids, positions, keep, more)
        return self._rows(outputs, keep), getattr(outputs, self.cache_name, None)

    def _call(self, input_ids: Tensor, position_ids: Tensor, keep: Tensor | None, more: dict[str, Any]) -> Any:
        if self.takes_positions:
            more["position_ids"] = position_ids
        if self.picks_rows and keep is not None:
            more["logits_to_keep"] = keep
        return self.model(input_ids=input_ids, **more)

    def _rows(self, outputs: Any, keep: Tensor | None) -> Tensor:
        rows: Tensor = outputs.logits[0]
        return rows if keep is None or self.picks_rows else rows[keep]


def collect(
    plan: StepPlan,
    prompt_ids: Collection[int],
    forward: Callable[[ScheduledSequence, Tensor], Tensor],
    observation: Observation | None,
    cache: KVCache,
) -> RunnerOutput:
    """Run the entries one by one; each gives every row of its chunk, its last one, or none."""
    sampled: list[Tensor] = []
    prompt_logits: dict[int, Tensor] = {}
    failures: dict[int, YaieError] = {}
    width = None
    for entry in plan.batch:
        wants_all = entry.seq.seq_id in prompt_ids
        keep = torch.arange(0 if wants_all else entry.num_tokens - int(entry.samples), entry.num_tokens)
        if observation is not None:
            observation.begin(ForwardRows(plan.step, [entry], [0], keep.tolist(), cache))
        rows = forward(entry, keep)
        if observation is not None:
            failures |= observation.end(rows)
        width = rows.new_empty(0, rows.shape[-1])
        if wants_all:
            prompt_logits[entry.seq.seq_id] = rows
        if entry.samples:
            sampled.append(rows[-1:])
    if width is None:
        raise ValueError("a step without tokens")
    return RunnerOutput(torch.cat([width, *sampled]), prompt_logits, failures)
