"""Counters since the engine started. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass, field

from .outputs import RequestOutput
from .plan import StepPlan
from .snapshot import BlockEvents


@dataclass(slots=True)
class Totals:
    """`requests` counts ended requests by outcome; the token counts of prompts are those of ended requests.

    `breaches` counts how often the books were found to contradict each other: 0 in an engine without a bug.
    """

    requests: dict[str, int] = field(default_factory=dict)
    prompt_tokens: int = 0
    cached_tokens: int = 0
    computed_tokens: int = 0
    generated_tokens: int = 0
    evictions: int = 0
    copies: int = 0
    breaches: int = 0

    def request(self, output: RequestOutput) -> None:
        """One request ended."""
        outcome = "error" if output.error else output.outputs[0].finish_reason or "error"
        self.requests[outcome] = self.requests.get(outcome, 0) + 1
        self.prompt_tokens += len(output.prompt_token_ids)
        self.cached_tokens += output.num_cached_tokens

    def step(self, plan: StepPlan, blocks: BlockEvents) -> None:
        """One step succeeded."""
        self.evictions += len(blocks.evicted)
        self.copies += len(blocks.copied)
        self.computed_tokens += plan.num_tokens
