"""Sampling by the kernels: the torch sampler's tokens and log-probabilities, also where rows change their logits."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from yaie_cuda import reference
from yaie_engine import SamplingParams
from yaie_engine.kernel_draw import KernelDraw
from yaie_engine.sampler import Sampler, SamplingRow

VOCAB, VALID = 600, 590
MIX: list[dict[str, Any]] = [
    {"temperature": 0},
    {"temperature": 1},
    {"temperature": 0.6, "top_k": 5},
    {"temperature": 1.4, "top_p": 0.8},
    {"temperature": 0.9, "top_k": 40, "top_p": 0.95, "min_p": 0.02},
    {"temperature": 1.0, "top_k": VOCAB},
]


class Calls:
    """The references behind the kernels' signatures, counted by shape of the logits."""

    def __init__(self) -> None:
        self.count: Counter[tuple[int, ...]] = Counter()
        self.penalised: Counter[tuple[int, ...]] = Counter()

    @property
    def kernels(self) -> KernelDraw:
        return KernelDraw(self.sample, self.penalise)

    def sample(self, logits: torch.Tensor, *rest: Any) -> None:
        self.count[tuple(logits.shape)] += 1
        reference.top_k_top_p_sample(logits, *rest)

    def penalise(self, logits: torch.Tensor, *rest: Any) -> None:
        self.penalised[tuple(logits.shape)] += 1
        reference.apply_penalties(logits, *rest)


def rows_of(sampler: Sampler, settings: list[dict[str, Any]], prompt: Sequence[int] = ()) -> list[SamplingRow]:
    return [
        sampler.new_row(SamplingParams(**one), seed=(-1) ** i * (2**63 - 7 * i), index=i % 3, prompt_token_ids=prompt)
        for i, one in enumerate(settings)
    ]


def test_the_tokens_are_those_of_the_torch_sampler() -> None:
    calls = Calls()
    ours, plain = Sampler(VOCAB, VALID, (), calls.kernels), Sampler(VOCAB, VALID, ())
    settings = MIX * 8
    pairs = rows_of(ours, settings), rows_of(plain, settings)
    for position in range(6):
        logits = torch.randn(len(settings), VOCAB, generator=torch.Generator().manual_seed(position)) * 4
        logits[:, VALID:] = 90  # ids without text
        found, expected = ours.sample(logits, pairs[0]), plain.sample(logits, pairs[1])
        assert found == expected
        for mine, theirs, token in zip(*pairs, found, strict=True):
            mine.push(token.token_id)
            theirs.push(token.token_id)
    assert calls.count == {(len(settings), VALID): 6}


CHANGES: list[dict[str, Any]] = [
    {},
    {"logit_bias": {3: 2.0, 17: -100}},
    {"repetition_penalty": 1.3},
    {"presence_penalty": 0.7, "frequency_penalty": -0.4, "logprobs": 3},
    {"min_tokens": 4, "stop_token_ids": [7, 8]},
    {"logprobs": 0},
    {"repetition_penalty": 0.8, "frequency_penalty": 1.1, "logit_bias": {5: 1.5}, "logprobs": 20},
]


def test_rows_that_change_their_logits_are_drawn_by_the_kernels_too() -> None:
    calls = Calls()
    ours, plain = Sampler(VOCAB, VALID, (7,), calls.kernels), Sampler(VOCAB, VALID, (7,))
    settings = [{**one, **changes} for one in MIX for changes in CHANGES]
    pairs = rows_of(ours, settings, range(40)), rows_of(plain, settings, range(40))
    for position in range(6):
        logits = torch.randn(len(settings), VOCAB, generator=torch.Generator().manual_seed(position)) * 4
        found, expected = ours.sample(logits, pairs[0]), plain.sample(logits, pairs[1])
        assert found == expected
        for mine, theirs, token in zip(*pairs, found, strict=True):
            mine.push(token.token_id)
            theirs.push(token.token_id)
    assert calls.count == {(len(settings), VALID): 6} and calls.penalised == {(len(settings), VOCAB): 6}


def test_greedy_rows_alone_need_no_kernel() -> None:
    calls = Calls()
    sampler = Sampler(VOCAB, VALID, (), calls.kernels)
    assert [t.token_id for t in sampler.sample(torch.eye(4, VOCAB), rows_of(sampler, MIX[:1] * 4))] == [0, 1, 2, 3]
    assert not calls.count


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_row_without_numbers_fails_alone(bad: float) -> None:
    sampler = Sampler(VOCAB, VALID, (), Calls().kernels)
    logits = torch.randn(3, VOCAB)
    logits[1] = bad
    rows = rows_of(sampler, [{"temperature": 1.0, "top_k": 9}] * 3)
    found = sampler.sample(logits, rows)
    assert [token.error is None for token in found] == [True, False, True]
    assert found[1].token_id == -1
