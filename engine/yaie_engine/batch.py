"""One step's plan as the tensors of one flat forward: made once per step, used by every layer."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from .errors import YaieError
from .plan import ScheduledSequence, StepPlan
from .sharing import Sharing
from .upload import stage, upload


@dataclass(frozen=True, slots=True)
class RunnerOutput:
    """`logits` [len(plan.sampling), vocab] in the model's dtype, in the order of `plan.sampling`.

    `prompt_logits` holds, for each sequence that asked, [tokens of this chunk, vocab]. `failures` are the sequences
    (ids) whose rows are known to be bad, and why.
    """

    logits: Tensor
    prompt_logits: dict[int, Tensor]
    failures: dict[int, YaieError] = field(default_factory=dict)

    def failed(self, plan: StepPlan) -> set[int]:
        """The sequences (ids) of the step of which nothing may be kept: known to be bad, or with unusable logits."""
        rows = zip(plan.sampling, unusable(self.logits).tolist(), strict=True)
        bad = [entry.seq.seq_id for entry, is_bad in rows if is_bad]
        scored = [seq_id for seq_id, rows in self.prompt_logits.items() if bool(unusable(rows).any())]
        return {*self.failures, *bad, *scored}


def unusable(logits: Tensor) -> Tensor:
    """Rows of logits [rows, vocab] with NaN or +inf, or with no number at all: bool [rows]. -inf rules a token out."""
    return (torch.isnan(logits) | (logits == torch.inf)).any(1) | (logits == -torch.inf).all(1)


@dataclass(frozen=True, slots=True)
class Staged:
    """A batch of decodes on the host, padded to so many rows: what `graphs.DecodeInputs` copies to the device.

    `tokens` int64 [3, rows]: ids, which are filled in last, positions, slots; `contexts` int32 [rows]; `tables` int32
    [decodes, width].
    """

    tokens: Tensor
    contexts: Tensor
    tables: Tensor

    @classmethod
    def of(cls, batch: FlatBatch, rows: int) -> Staged:
        """A row that stands for no sequence has slot -1 and context 0."""
        rest = [0] * (rows - batch.num_tokens)
        tokens = [[0] * rows, batch.positions + rest, batch.slots + [-1] * len(rest)]
        return cls(
            stage(tokens, torch.int64, batch.device),
            stage(batch.contexts + rest, torch.int32, batch.device),
            stage(batch.tables, torch.int32, batch.device),
        )


class FlatBatch:
    """Tokens of all sequences end to end: those with one token first (one attention call serves them all), then chunks.

    Plain lists: `ids`, `positions` and `slots` per token; `tables` (padded with 0 to the longest) and `contexts` per
    entry. `input_ids`, `position_ids` int64 [1, num_tokens] and `keep` int64 lie on `device`; `keep` names the rows
    whose logits are wanted: one per sampling entry in plan order, then every row of each chunk that asked for prompt
    logits.

    With `sharing`, of the one-token entries in plan order, those lie in its order: group beside group.

    Token ids are looked up when they are first asked for: all else can be made before the step's turn. `staged` is what
    a graph made of it by then.
    """

    def __init__(
        self,
        plan: StepPlan,
        block_size: int,
        device: torch.device,
        prompt_ids: Collection[int] = (),
        sharing: Sharing | None = None,
    ) -> None:
        self.block_size, self.device, self.sharing = block_size, device, sharing
        self.staged: Staged | None = None
        singles = [entry for entry in plan.batch if entry.num_tokens == 1]
        if sharing is not None:
            singles = [singles[row] for row in sharing.order]
        self.entries = singles + [entry for entry in plan.batch if entry.num_tokens != 1]
        self.num_single = len(singles)
        self.starts = [0]
        for entry in self.entries:
            self.starts.append(self.starts[-1] + entry.num_tokens)
        self.num_tokens = self.starts[-1]
        self.positions = [position for entry in self.entries for position in range(entry.start, entry.stop)]
        self.slots = [slot for entry in self.entries for slot in slots_of(entry, block_size)]
        self.tables = self._block_tables()
        self.contexts = [entry.stop for entry in self.entries]
        self._keep_rows(plan, prompt_ids)

    @cached_property
    def ids(self) -> list[int]:
        return [token for entry in self.entries for token in entry.seq.token_ids[entry.start : entry.stop]]

    @cached_property
    def input_ids(self) -> Tensor:
        return upload([self.ids], torch.int64, self.device)

    @cached_property
    def position_ids(self) -> Tensor:
        return upload([self.positions], torch.int64, self.device)

    @cached_property
    def keep(self) -> Tensor:
        return upload(self.kept_rows, torch.int64, self.device)

    def send(self) -> None:
        """Queue the copies of what does not depend on token ids."""
        for name in ("position_ids",) if self.keeps_all else ("position_ids", "keep"):
            getattr(self, name)  # made when first asked for

    @property
    def chunk_starts(self) -> list[int]:
        """Where the entries of more than one token begin and end, counted from the first of them."""
        return [start - self.num_single for start in self.starts[self.num_single :]]

    def split(self, rows: Tensor) -> RunnerOutput:
        """Give each its rows of the kept logits [len(keep), vocab]."""
        prompt_logits = {}
        start = self.num_sampling
        for seq_id, count in self._prompt_rows:
            prompt_logits[seq_id] = rows[start : start + count]
            start += count
        return RunnerOutput(rows[: self.num_sampling], prompt_logits)

    def _keep_rows(self, plan: StepPlan, prompt_ids: Collection[int]) -> None:
        first = {entry.seq.seq_id: start for entry, start in zip(self.entries, self.starts, strict=False)}
        keep = [first[entry.seq.seq_id] + entry.num_tokens - 1 for entry in plan.sampling]
        self.num_sampling = len(keep)
        self._prompt_rows: list[tuple[int, int]] = []
        for entry in plan.batch:
            if entry.seq.seq_id in prompt_ids:
                keep += range(first[entry.seq.seq_id], first[entry.seq.seq_id] + entry.num_tokens)
                self._prompt_rows.append((entry.seq.seq_id, entry.num_tokens))
        self.keeps_all = keep == list(range(self.num_tokens))
        self.kept_rows = keep

    def _block_tables(self) -> list[list[int]]:
        tables = [entry.table for entry in self.entries]
        width = max(map(len, tables), default=0)
        return [table + [0] * (width - len(table)) for table in tables]


def slots_of(entry: ScheduledSequence, block_size: int) -> list[int]:
    """The slot of each token of `entry`; -1 where the KV is already there and must stay."""
    table = entry.table
    return [
        table[position // block_size] * block_size + position % block_size if position >= entry.first_write else -1
        for position in range(entry.start, entry.stop)
    ]
