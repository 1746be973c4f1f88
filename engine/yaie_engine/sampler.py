"""From logits to one token per row.

Order of operations, as in vLLM: raw log-probabilities are set aside; penalties (repetition, frequency, presence), logit
bias, min_tokens; a greedy row takes the best token, lowest id first; other rows divide by the temperature, filter by
top-k, top-p and min-p, and draw. Ids that the tokenizer does not know are never taken. A row's result depends on its
own logits, parameters, seed and position only: neighbours and place in the batch do not matter.

Logits come in the model's dtype. They are widened to float32 where something is computed from them: for rows that draw,
for those that ask for log-probabilities, and when a row changes its logits. Taking the best needs none of that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from .distribution import draw
from .errors import RequestError, YaieError
from .kernel_draw import KernelDraw
from .logprobs import RankedLogprobs, rank_table, ranked_logprobs, read_table
from .params import SamplingParams
from .penalties import add_bias, forbid, penalise
from .ranking import BestOf, best_of
from .sampling_row import SamplingRow
from .upload import upload

__all__ = ["SampledToken", "Sampler", "SamplingRow"]

_PROMPT_ROWS = 64
"""Prompt log-probabilities are made for this many positions at a time, to bound memory."""


@dataclass(frozen=True, slots=True)
class SampledToken:
    """One row's result. With `error` set the row has no token: `token_id` is -1.

    `logprobs`: {token id: (logprob, rank)}, chosen token first, or None when not asked for. They are those of the raw
    model: log-softmax before penalties and temperature.
    """

    token_id: int
    logprobs: RankedLogprobs | None = None
    error: YaieError | None = None


class Sampler:
    """Samples for one model. Holds no per-request state; that lives in the rows it makes."""

    def __init__(
        self,
        vocab_size: int,
        num_valid_tokens: int,
        eos_token_ids: Sequence[int],
        draw_kernel: KernelDraw | None = None,
        best_of: BestOf = best_of,
    ) -> None:
        """`vocab_size`: width of the logits; `num_valid_tokens`: ids from here on have no text and are masked.

        With `draw_kernel` kernels penalise and draw; the device is then read once a step. `best_of` finds the best
        score of each row.
        """
        self.vocab_size = vocab_size
        self.use(draw_kernel, best_of)
        self.num_valid_tokens = min(num_valid_tokens, vocab_size)
        self.eos_token_ids = tuple(eos_token_ids)

    def use(self, draw_kernel: KernelDraw | None, best_of: BestOf) -> None:
        """Draw by these from now on; None: by torch."""
        self._draw_kernel, self._best_of = draw_kernel, best_of

    def check(self, params: SamplingParams) -> None:
        """Raise RequestError when `params` names token ids that can never be sampled."""
        for field, ids in (("logit_bias", params.logit_bias), ("stop_token_ids", params.stop_token_ids)):
            for token_id in ids:
                if not 0 <= token_id < self.num_valid_tokens:
                    raise RequestError(
                        f"SamplingParams: {field}: token id {token_id} is not in the vocabulary "
                        f"(allowed: 0 to {self.num_valid_tokens - 1})"
                    )

    def new_row(
        self, params: SamplingParams, *, seed: int, index: int = 0, prompt_token_ids: Sequence[int] = ()
    ) -> SamplingRow:
        """State of choice number `index` of a request; `seed` is its own or derived (`philox.derive_seed`).

        Raises:
            RequestError: as `check`.
        """
        self.check(params)
        ends = set(params.stop_token_ids) | (set() if params.ignore_eos else set(self.eos_token_ids))
        end_ids = np.array(sorted(i for i in ends if 0 <= i < self.num_valid_tokens), dtype=np.int64)
        return SamplingRow(
            params,
            seed=seed,
            index=index,
            prompt_token_ids=prompt_token_ids,
            end_ids=end_ids,
            limit=self.num_valid_tokens,
        )

    def sample(self, logits: Tensor, rows: Sequence[SamplingRow]) -> list[SampledToken]:
        """The next token of each row from `logits` [rows, vocab_size] of any dtype; `logits` is not changed.

        A row whose logits hold NaN or +inf, or no finite value at all, gets an error of its own. Logits of a wrong
        shape are an error of every row. Nothing is raised.
        """
        return self.start(logits, rows)()

    def start(self, logits: Tensor, rows: Sequence[SamplingRow]) -> Callable[[], list[SampledToken]]:
        """The first half of `sample`: queues its work on the device without waiting for it.

        What it gives is the second half, to be called once, before `logits` are written again.
        """
        if not rows:
            return list
        if tuple(logits.shape) != (len(rows), self.vocab_size):
            wanted = f"[{len(rows)}, {self.vocab_size}]"
            failed = [_failed(f"the model gave logits of shape {list(logits.shape)}, expected {wanted}")] * len(rows)
            return partial(list, failed)
        greedy = all(row.params.greedy for row in rows)
        scored = self._scored(logits, rows, greedy)
        if greedy:
            return self._results(scored, scored.chosen, rows)
        if self._draw_kernel is not None:
            # No row is looked at before: one whose logits are no numbers gets -1, and an error when all are read.
            return self._results(scored, self._draw_kernel(scored.scores, rows).clamp_(min=0), rows)
        return partial(self._draw, scored, rows)

    def _scored(self, logits: Tensor, rows: Sequence[SamplingRow], greedy: bool) -> _Scored:
        """`greedy`: no row draws."""
        adjusts = any(row.adjusts for row in rows)
        if adjusts:
            scores = self._adjusted(logits, rows)
        else:
            by_kernel = self._draw_kernel is not None and not greedy
            scores = (logits.float() if by_kernel else logits)[:, : self.num_valid_tokens]
        best, chosen = self._best_of(scores)
        rest = logits if adjusts else logits[:, self.num_valid_tokens :]
        peaks = torch.maximum(best, rest.amax(-1).to(best.dtype)) if rest.shape[1] else best
        return _Scored(logits, scores, best, chosen, peaks)

    def _draw(self, scored: _Scored, rows: Sequence[SamplingRow]) -> list[SampledToken]:
        """Without a kernel: looks at the rows first, and draws for those that can be drawn for."""
        scores, best, chosen = scored.scores, scored.best, scored.chosen
        usable = torch.isfinite(best).tolist()
        drawn = [i for i, row in enumerate(rows) if usable[i] and not row.params.greedy]
        if len(drawn) == len(rows):
            chosen = draw(scores, best, rows)
        elif drawn:
            index = torch.tensor(drawn, device=scores.device)
            chosen[index] = draw(scores[index], best[index], [rows[i] for i in drawn])
        return self._results(scored, chosen, rows)()

    def prompt_logprobs(self, logits: Tensor, target_ids: Sequence[int], num: int) -> list[RankedLogprobs]:
        """Log-probabilities of prompt tokens: row i of `logits` [n, vocab] predicts `target_ids[i]`.

        Each entry holds the target first, then the `num` most likely tokens.

        Raises:
            YaieError: shapes disagree, or the logits are not finite.
        """
        if tuple(logits.shape) != (len(target_ids), self.vocab_size):
            raise YaieError(f"prompt logits of shape {list(logits.shape)} for {len(target_ids)} tokens")
        result: list[RankedLogprobs] = []
        for start in range(0, len(target_ids), _PROMPT_ROWS):
            part = torch.log_softmax(logits[start : start + _PROMPT_ROWS].float(), dim=-1)
            targets = torch.tensor(target_ids[start : start + _PROMPT_ROWS], dtype=torch.int64, device=logits.device)
            result += ranked_logprobs(part, targets, [num] * len(part))
        if any(math.isnan(value) for entry in result for value, _ in entry.values()):
            raise YaieError("the model gave logits that are not finite numbers")
        return result

    def _adjusted(self, raw: Tensor, rows: Sequence[SamplingRow]) -> Tensor:
        """Logits of valid ids after penalties, bias and min_tokens: float32, a copy."""
        # Whole rows: kernels are made for their distance.
        scores = raw.to(torch.float32, copy=True, memory_format=torch.contiguous_format)
        if counted := [(i, row.counts, row.penalties) for i, row in enumerate(rows) if row.counts is not None]:
            (self._draw_kernel.penalise if self._draw_kernel is not None else penalise)(scores, counted)
        if biased := [(i, *row.bias) for i, row in enumerate(rows) if row.bias is not None]:
            add_bias(scores, biased)
        if forbidden := [(i, row.end_ids) for i, row in enumerate(rows) if row.ends_forbidden]:
            forbid(scores, forbidden)
        return scores[:, : self.num_valid_tokens]

    def _results(
        self, scored: _Scored, chosen: Tensor, rows: Sequence[SamplingRow]
    ) -> Callable[[], list[SampledToken]]:
        """Everything that the host must know of the step comes over in one piece, when the result is called.

        Token, best score and largest raw logit of each row; what `read_table` needs of the rows that ask for
        log-probabilities.
        """
        raw = scored.raw
        parts = [chosen, scored.best, scored.peaks]
        wanted = {i: row.params.logprobs for i, row in enumerate(rows) if row.params.logprobs is not None}
        if wanted:
            index = upload(list(wanted), torch.int64, raw.device)
            logprobs = torch.log_softmax(raw[index].float(), dim=-1)
            parts.append(rank_table(logprobs, chosen[index], max(wanted.values())).flatten())
        return partial(_read, _to_read(parts, raw.device.type), raw, wanted)


def _to_read(parts: list[Tensor], device: str) -> list[Tensor]:
    """What the host reads: one tensor where each read waits for a device."""
    return parts if device == "cpu" else [torch.cat([part.double() for part in parts])]


@dataclass(frozen=True, slots=True)
class _Scored:
    """The rows of a step: `raw` logits [rows, vocab], and `scores` [rows, valid ids] that tokens are taken by.

    `best` and `chosen` are the largest score of each row and its id. `peaks`, the largest raw logits, show NaN and
    infinity also where nothing is taken from, such as padding: the model is broken all the same.
    """

    raw: Tensor
    scores: Tensor
    best: Tensor
    chosen: Tensor
    peaks: Tensor


def _read(packed: list[Tensor], raw: Tensor, wanted: dict[int, int]) -> list[SampledToken]:
    """Wait for the device, once; `wanted` are the alternatives that rows ask for."""
    figures, count = [figure for part in packed for figure in part.tolist()], len(raw)
    width = (len(figures) - 3 * count) // max(len(wanted), 1)
    table = [figures[start : start + width] for start in range(3 * count, len(figures), width)] if wanted else []
    ranked = dict(zip(wanted, read_table(table, list(wanted.values())), strict=True))
    tokens, tops, peaks = (figures[part * count : (part + 1) * count] for part in range(3))
    return [
        SampledToken(int(token), ranked.get(i)) if math.isfinite(top) and peak < math.inf else _failed(_reason(raw[i]))
        for i, (token, top, peak) in enumerate(zip(tokens, tops, peaks, strict=True))
    ]


def _reason(row: Tensor) -> str:
    if bool(torch.isnan(row).any()):
        return "the model gave NaN logits"
    if bool((row == torch.inf).any()):
        return "the model gave infinite logits"
    return "no token can be sampled: the model or the parameters rule out every one"


def _failed(reason: str) -> SampledToken:
    return SampledToken(-1, None, YaieError(reason))
