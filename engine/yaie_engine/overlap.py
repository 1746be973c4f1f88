"""Host work behind a step that runs: what a device that works by itself leaves the engine's thread time for.

On such a device `Runner.run` and `Sampler.start` only queue work. The host waits once a step, for the sampled ids, and
the device waits from then until the next step is queued. So as little as possible lies between the two:

    ids of step N arrive
        complete N, deliver the tokens that may end their sequence, see that the guess for N + 1 holds
        deliver the rest of N, if the launch of N + 1 is no replay
    queue N + 1, whose inputs lie ready but for the ids
        record N, take the blocks of N + 1, deliver the rest of N, guess N + 2 and make its inputs
    wait for the ids of step N + 1

Two things make that right. **What is late cannot matter**: whether an id ends its sequence is known from ids alone
(`Delivery.decides`), except for stop strings, whose tokens are delivered at once. All late work is done before the
engine's thread does anything else: an action from the inbox (a snapshot is one), a timeout, a failure, the end
(`LLMEngine._catch_up`). Other threads may read figures at any moment (`increment`, `progress`, `Totals`): these count
a token when it is delivered and show a step when its record is whole. **A guess changes nothing** (`look_ahead`): it
becomes the plan when it is exactly what `schedule` would give, or is dropped.

A late token that cannot be delivered ends its request while the next step runs, and that step passes over it. Its
blocks are freed at once, although the device may still write to them. That is safe because one stream carries out all
that touches blocks, copies and forwards, in the order in which it was queued. A freed block can be given only to a
later step. What this step writes is over by then, and whoever gets the block reads no slot that it has not written or
been copied since. The tree keeps only what steps before have computed: this one publishes nothing for who has ended.

**Nobody waits for a launch**: a token waits for one only where that takes as long as the host needs to replay a graph
(`Runner.replays`), guessed or not. Whatever is launched operation by operation (prompts, tiers without graphs), and
whatever may capture or compile first, comes after the tokens.

The order of a step that nobody guessed: record N, schedule N + 1, queue it; before or after that the rest of N as
above. Where results are there when `run` returns, as on a CPU, nothing can be hidden and `LLMEngine.overlap` is off:
the same code then leaves nothing for later. Imports no torch.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .plan import StepPlan
from .sequence import Sequence
from .snapshot import StepTimes

if TYPE_CHECKING:
    from .sampler import SampledToken

Phase = str


class StepClock:
    """Charges the time of the engine's thread to the steps and phases that it was spent for, each moment once."""

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        """`now` gives seconds, of whatever is to be told: of the clock, or of the processor."""
        self._now = now
        self._last = now()

    def skip(self) -> None:
        """What went by was for no step."""
        self._last = self._now()

    def charge(self, spent: Spent, phase: Phase) -> None:
        """What went by was for `phase` of the step that `spent` belongs to."""
        before, self._last = self._last, self._now()
        spent.ms[phase] += (self._last - before) * 1000


@dataclass(slots=True)
class Spent:
    """Milliseconds of one step by phase, as in `StepTimes`."""

    ms: dict[Phase, float] = field(default_factory=lambda: dict.fromkeys(StepTimes.__slots__, 0.0))

    @property
    def times(self) -> StepTimes:
        return StepTimes(**self.ms)


@dataclass(slots=True)
class Finished:
    """A step that succeeded: the tokens that are not delivered yet, and whether it was recorded."""

    plan: StepPlan
    spent: Spent
    tokens: dict[Sequence, SampledToken] = field(default_factory=dict)
    recorded: bool = False
