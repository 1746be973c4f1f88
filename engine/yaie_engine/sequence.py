"""One choice of one request as the scheduler sees it: the unit that owns a block table. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from .states.kept import KeptState
    from .turns import Source

EndState = Literal["finished", "cancelled", "failed"]
SequenceState = Literal["waiting", "running"] | EndState


@dataclass(eq=False, slots=True)
class Sequence:
    """Tokens, block table and progress. Only the scheduler changes it, on the engine thread.

    `token_ids` is the prompt followed by what was sampled. `computed` tokens have their KV in the blocks of
    `block_table`; positions below `valid` are never written again (a full hit recomputes its last token only for the
    logits); tokens below `prefill_end` were there at the last admission. `leader` is the first choice of the same
    prompt: the others wait for its prompt and share it. A `private` namespace is dropped with its last live sequence.

    `tenant` is whose it is, under the fair policy. `rank` is what it counts since its last admission. It has waited
    `waited` steps before it was last queued at `queued_step`. `patience` is how many steps it may yet wait for a prefix
    that another one computes (None: it never had to), `marks` are the hashes by which such prefixes are found. While
    `source` may have tokens of its prompt, and is asked at its turn. While these are read `reading` blocks are kept for
    it, at least one. Of its prompt, `restored` tokens came from there and
    `restored_from_host` from host blocks. Where it is `swapped`, host blocks hold its KV while it waits.

    Of a model whose state is kept whole: with a `salt` it may go on from states of others and leave its own ("" is
    everybody's). `resume` is the one that its first forward goes on from, of which the runner makes a copy; it stands
    for `restored_state` tokens of its prompt.
    """

    seq_id: int
    request_id: str
    token_ids: list[int]
    num_prompt_tokens: int
    max_tokens: int
    priority: int = 0
    namespace: str = ""
    index: int = 0
    leader: Sequence | None = None
    read_cache: bool = True
    private: bool = False
    tenant: str = ""
    salt: str | None = None

    state: SequenceState = "waiting"
    block_table: list[int] = field(default_factory=list)
    computed: int = 0
    valid: int = 0
    prefill_end: int = 0
    admitted: int = 0
    rank: int = 0
    queued_step: int = 0
    waited: int = 0
    patience: int | None = None
    marks: tuple[int, ...] | None = None
    num_cached_tokens: int | None = None
    source: Source | None = None
    reading: int = 0
    restored: int = 0
    restored_from_host: int = 0
    restored_state: int = 0
    resume: KeptState | None = None
    swapped: bool = False
    num_preemptions: int = 0
    num_computed_total: int = 0
    admissions: list[Admission] = field(default_factory=list)

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def num_output_tokens(self) -> int:
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def output_token_ids(self) -> list[int]:
        return self.token_ids[self.num_prompt_tokens :]

    @property
    def remaining(self) -> int:
        """Tokens that still have to be computed before the next one can be sampled."""
        return len(self.token_ids) - self.computed

    @property
    def pending(self) -> bool:
        """Whether what it will share is still being read, or computed by its first choice."""
        leader = self.leader
        return self.reading > 0 or (leader is not None and leader.live and leader.computed < leader.num_prompt_tokens)

    @property
    def live(self) -> bool:
        return self.state in ("waiting", "running")

    def note(self, admission: Admission) -> None:
        """It has just been admitted."""
        if self.num_cached_tokens is None:
            self.num_cached_tokens = self.computed
        self.prefill_end = self.num_tokens
        self.admissions.append(admission)

    @property
    def label(self) -> str:
        """The id shown in views: choices after the first carry their index."""
        return self.request_id if self.index == 0 else f"{self.request_id}/{self.index}"


@dataclass(frozen=True, slots=True)
class Admission:
    """One admission: how many tokens the sequence had, how many the tree gave it, and from where."""

    step: int
    num_tokens: int
    hit: int
    matched: tuple[tuple[int, int], ...]
    shared: tuple[int, ...]
    copied: tuple[int, int] | None
