"""What the dashboard draws: the figures of each recorded step, and totals over all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from yaie_engine.tape import PUT_BACK

from .pool_counts import PoolCounts
from .timeline_model import request_of

Recording = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StepFigures:
    """One step. Requests and blocks are those after it; `prompt` and `hit` count from the oldest recorded step on:
    prompt tokens of the requests that were admitted, and those of them that came from the cache."""

    step: int
    running: int
    queued: int
    prefill: int
    decode: int
    shared: int
    held: int
    cached: int
    prompt: int
    hit: int
    output: int
    ms: tuple[float, ...]
    preempted: int
    swapped: int
    evicted: int
    copied: int

    @property
    def tokens(self) -> int:
        """All tokens of the step's batch."""
        return self.prefill + self.decode

    @property
    def hit_rate(self) -> float | None:
        """Per cent of prompt tokens that came from the cache; None before the first request."""
        return 100 * self.hit / self.prompt if self.prompt else None

    @property
    def total_ms(self) -> float:
        """The whole step."""
        return sum(self.ms)

    @property
    def forward_ms(self) -> float:
        """The model's part of it."""
        return self.ms[1]

    @property
    def rate(self) -> float:
        """Output tokens per second, while the step ran."""
        return 1000 * self.output / self.total_ms if self.total_ms else 0.0


@dataclass(frozen=True, slots=True)
class Totals:
    """Over the recorded steps. Ended ones are those that finished, were cancelled or failed."""

    running: int
    queued: int
    ended: int
    requests: int
    prompt: int
    output: int
    preemptions: int
    swaps: int
    evictions: int
    copies: int


@dataclass(frozen=True, slots=True)
class DashboardView:
    """Steps from the oldest recorded one, totals, and what the recording says of the engine."""

    steps: tuple[StepFigures, ...]
    totals: Totals
    engine: Mapping[str, Any]

    @property
    def num_blocks(self) -> int:
        """Blocks of the pool; 0 where the engine is gone."""
        return int(self.engine.get("num_blocks") or 0)

    @property
    def budget(self) -> int | None:
        """The most tokens of a step."""
        return self.engine.get("max_num_batched_tokens")


@dataclass(slots=True)
class _Life:
    """A choice of a request while the recording is read."""

    prompt: int | None
    admitted: bool = False
    output: int = 0
    alive: bool = True


def dashboard_view(recording: Recording) -> DashboardView:
    """Read a recording from its first step to its last."""
    lives = _Lives(recording)
    steps = tuple(lives.figures())
    requests: dict[str, bool] = {}
    for label, life in lives.known.items():
        request = request_of(label)
        requests[request] = requests.get(request, False) or life.alive
    last = steps[-1] if steps else None
    totals = Totals(
        running=last.running if last else len(lives.running),
        queued=last.queued if last else len(lives.waiting),
        ended=sum(not alive for alive in requests.values()),
        requests=len(requests),
        prompt=last.prompt if last else 0,
        output=sum(step.output for step in steps),
        preemptions=sum(step.preempted + step.swapped for step in steps),
        swaps=sum(step.swapped for step in steps),
        evictions=sum(step.evicted for step in steps),
        copies=sum(step.copied for step in steps),
    )
    return DashboardView(steps, totals, recording["engine"])


class _Lives:
    """Follows the requests of a recording."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        base = recording["base"]
        self.running = {label for label, _, _ in base["tables"]}
        self.waiting = set(base["waiting"])
        self.known = {label: self._life(label, admitted=label in self.running) for label in self.running | self.waiting}
        for label, _, computed in base["tables"]:
            self._compute(self.known[label], computed)
        self.prompt = self.hit = 0

    def figures(self) -> Iterator[StepFigures]:
        """The figures of each step in turn."""
        pool = PoolCounts(self.recording["base"])
        for step in self.recording["steps"]:
            pool.apply(step)
            output, lost = self._follow(step), Counter(lost_of(step).values())
            yield StepFigures(
                step=step["step"],
                running=len(self.running),
                queued=len(self.waiting),
                prefill=step["prefill"],
                decode=step["decode"],
                shared=pool.counts["shared"],
                held=pool.counts["held"],
                cached=pool.counts["cached"],
                prompt=self.prompt,
                hit=self.hit,
                output=output,
                ms=tuple(step["ms"]),
                preempted=lost["preempted"],
                swapped=lost["swapped"],
                evicted=len(step.get("evicted", ())),
                copied=len(step.get("copied", ())),
            )

    def _life(self, label: str, admitted: bool = False) -> _Life:
        facts = self.recording["requests"].get(label) or {}
        return _Life(facts.get("num_prompt_tokens"), admitted)

    def _follow(self, step: Mapping[str, Any]) -> int:
        """Go on by one step; gives the number of output tokens that it wrote."""
        for label in step.get("arrived", ()):
            self.known[label] = self._life(label)
            self.waiting.add(label)
        for label, hit in step.get("admitted", ()):
            self._admit(label, hit)
        batch = {label: (kind, tokens) for label, kind, tokens in step.get("batch", ())}
        output = 0
        for label, _, _, computed in step.get("tables", ()):
            self.running.add(label)
            output += self._compute(self._known(label), computed, batch.get(label))
        for label, state in step.get("left", ()):
            self.running.discard(label)
            self.waiting.discard(label)
            if state in PUT_BACK:
                self.waiting.add(label)
                continue
            self._known(label).alive = False
            if state == "finished" and label in batch:  # its last token is on no table any more
                output += 1
        return output

    def _admit(self, label: str, hit: int) -> None:
        self.waiting.discard(label)
        life = self._known(label)
        # Choices after the first take what the first one computed, which is no hit of a prompt.
        if not life.admitted and life.prompt is not None and request_of(label) == label:
            self.prompt += life.prompt
            self.hit += hit
        life.admitted = True

    def _known(self, label: str) -> _Life:
        return self.known.setdefault(label, self._life(label, admitted=True))

    @staticmethod
    def _compute(life: _Life, computed: int, work: tuple[str, int] | None = None) -> int:
        """Tokens written since: with the prompt computed, there is one token more than has its keys and values.

        Where nothing remembers how long the prompt was, its decodes are counted.
        """
        if life.prompt is None:
            return work[1] if work and work[0] == "decode" else 0
        before, life.output = life.output, max(life.output, computed - life.prompt + 1)
        if work is None or life.output == before:
            return 0
        return work[1] if work[0] == "decode" else 1


def lost_of(step: Mapping[str, Any]) -> dict[str, str]:
    """Who lost its blocks, and whether it was preempted or swapped: those that left to wait, and those that were
    admitted again in the same step."""
    left = {label: state for label, state in step.get("left", ()) if state in PUT_BACK}
    return dict.fromkeys([*step.get("preempted", ()), *left], "preempted") | {
        label: "swapped" for label, state in left.items() if state == "swapped"
    }
