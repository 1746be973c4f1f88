"""What the engine wants of whoever runs its steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from .errors import YaieError
from .plan import StepPlan

if TYPE_CHECKING:
    from torch import Tensor

    from .loaded import LoadedModel
    from .observation import Observer
    from .sleep import Freed


class StepOutput(Protocol):
    """`logits` [len(plan.sampling), vocab], any dtype; `prompt_logits` rows of whole chunks by sequence id.

    `failures`: by sequence id, why a request cannot be served although the step succeeded.
    """

    @property
    def logits(self) -> Tensor: ...
    @property
    def prompt_logits(self) -> dict[int, Tensor]: ...
    @property
    def failures(self) -> dict[int, YaieError]: ...


class Runner(Protocol):
    """Carries out a plan: copies, then one forward. `prepare` makes its inputs ahead of time, but for the token ids.

    `observe` lets others look at every forward from the next one on; with nobody it ends.

    `renewed` says whether parts of the model were replaced, or written, since it was asked last: what is cached was
    computed by those before. Where a request may begin all of them are looked at. `changed`: that happened since the
    weights were read, so that nothing is computed any more that the model's name stands for.

    `replays` says whether the launch of so many decodes, and nothing else, is over in an instant.

    `sleep` gives memory back, and with it everything that was made for steps; `wake` takes it again, and gives the
    model where that was read anew. Both leave all as it was when they raise.
    """

    def run(self, plan: StepPlan, prompt_logit_ids: frozenset[int] = ...) -> StepOutput: ...
    def prepare(self, plan: StepPlan, prompt_logit_ids: frozenset[int] = ...) -> None: ...
    def renewed(self, begins: bool) -> bool: ...
    def observe(self, observers: tuple[Observer, ...]) -> None: ...
    def replays(self, num_decodes: int) -> bool: ...
    def sleep(self, level: int) -> Freed: ...
    def wake(self) -> LoadedModel | None: ...
    def close(self) -> None: ...
    @property
    def changed(self) -> bool: ...
