"""Log-probabilities of prompts, for the requests that ask for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .delivery import Delivery
from .device_errors import lost, out_of_memory
from .errors import SURVIVED, YaieError, step_error
from .fault_points import fault_point
from .plan import ScheduledSequence, StepPlan
from .request import Choice, Request
from .sequence import Sequence
from .step_runner import StepOutput

if TYPE_CHECKING:
    from torch import Tensor

    from .sampler import Sampler


class PromptScores:
    """Fills `Request.prompt_logprobs`. `owners` says whose each sequence is. Engine thread only."""

    def __init__(self, sampler: Sampler, delivery: Delivery, owners: dict[Sequence, tuple[Request, Choice]]) -> None:
        self._sampler, self._delivery, self._owners = sampler, delivery, owners

    def wanted(self, plan: StepPlan) -> frozenset[int]:
        """Sequences whose prompt rows are wanted: the first choice, while its prompt is computed."""
        return frozenset(e.seq.seq_id for e in plan.batch if self._wanted(e))

    def score(self, plan: StepPlan, output: StepOutput) -> list[tuple[Request, YaieError]]:
        """Turn prompt logits into log-probabilities; gives back the requests that this step failed, and why."""
        failed = []
        for entry in plan.batch:
            rows, failure = output.prompt_logits.get(entry.seq.seq_id), output.failures.get(entry.seq.seq_id)
            if (rows is None and failure is None) or entry.seq not in self._owners:
                continue
            request = self._owners[entry.seq][0]
            if rows is None or failure is not None:
                failed += [(request, failure)] if failure is not None else []
                continue
            try:
                self._score(request, entry, rows)
            except SURVIVED as error:
                if out_of_memory(error) or lost(error):
                    raise
                failed.append((request, step_error(error, plan.step)))
        return failed

    def _wanted(self, entry: ScheduledSequence) -> bool:
        request, choice = self._owners[entry.seq]
        return (
            request.prompt_logprobs is not None and choice.seq.index == 0 and entry.start < entry.seq.num_prompt_tokens
        )

    def _score(self, request: Request, entry: ScheduledSequence, rows: Tensor) -> None:
        """Row i of a chunk predicts the prompt token after it."""
        wanted, scores = request.params.prompt_logprobs, request.prompt_logprobs
        if wanted is None or scores is None:
            return
        fault_point("score", request, entry)
        targets = request.prompt_token_ids[entry.start + 1 : entry.stop + 1]
        found = self._sampler.prompt_logprobs(rows[: len(targets)], targets, wanted)
        for position, raw in enumerate(found, entry.start + 1):
            scores[position] = self._delivery.logprobs(raw)
