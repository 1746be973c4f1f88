"""What findings are computed from: a snapshot, the tape, the ended requests and the settings of one engine."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from yaie_widgets.prompt_split import Decode

from .finding import Span

if TYPE_CHECKING:
    from yaie_engine.config import EngineConfig
    from yaie_engine.record import RequestRecord
    from yaie_engine.snapshot import EngineSnapshot, StepRecord
    from yaie_engine.tape import Tape

# The engine's own defaults for `max_num_batched_tokens`, by kind of device.
DEFAULT_BUDGET = {"cpu": 512, "cuda": 2048}


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings that findings look at. `budget` is what a step may hold, `asked_budget` what was configured."""

    asked_budget: int
    budget: int
    max_num_seqs: int
    threshold: int
    caching: bool
    chunked: bool
    eager: bool

    @classmethod
    def of(cls, config: EngineConfig, snapshot: EngineSnapshot) -> Settings:
        """The settings as the engine of this snapshot applies them."""
        device = snapshot.model.device.partition(":")[0]
        asked = config.max_num_batched_tokens or DEFAULT_BUDGET.get(device, DEFAULT_BUDGET["cpu"])
        chunked = config.enable_chunked_prefill
        return cls(
            asked_budget=asked,
            # A prompt that may not be cut goes in whole, so one step must hold the longest.
            budget=asked if chunked else max(asked, snapshot.model.max_model_len),
            max_num_seqs=config.max_num_seqs,
            threshold=config.long_prefill_token_threshold,
            caching=config.enable_prefix_caching,
            chunked=chunked,
            eager=config.enforce_eager,
        )


@dataclass(frozen=True)
class Run:
    """The material of one report. Snapshot and tape may be a few steps apart: each finding reads from one of them."""

    snapshot: EngineSnapshot
    tape: Tape
    history: tuple[RequestRecord, ...]
    settings: Settings
    decode: Decode | None = field(default=None, repr=False)

    @cached_property
    def steps(self) -> dict[int, StepRecord]:
        """The recorded steps by number."""
        return {record.step: record for record in self.snapshot.steps}

    @cached_property
    def ran(self) -> tuple[RequestRecord, ...]:
        """The ended requests that got into a step, in the order in which they began."""
        begun = [record for record in self.history if record.first_step is not None]
        return tuple(sorted(begun, key=lambda record: (record.first_step or 0, record.submitted_at)))

    @cached_property
    def window(self) -> Span:
        """The recorded steps and the requests in them."""
        names = {entry.request_id.partition("/")[0] for step in self.snapshot.steps for entry in step.batch}
        numbers = list(self.steps)
        return Span(min(numbers, default=None), max(numbers, default=None), len(names))

    def span(self, records: Iterable[RequestRecord]) -> Span:
        """What a finding about these requests was measured over."""
        every = list(records)
        first = min((r.first_step for r in every if r.first_step is not None), default=None)
        last = max((r.last_step for r in every if r.last_step is not None), default=None)
        return Span(first, last, len(every))


def worst_first(values: dict[str, float]) -> tuple[str, ...]:
    """Request ids by falling value."""
    return tuple(sorted(values, key=lambda name: (-values[name], name)))


def percent(part: float, whole: float) -> float:
    """A share of something that is there."""
    return 100.0 * part / whole
