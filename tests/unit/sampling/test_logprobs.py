"""Log-probabilities of sampled and of prompt tokens."""

from __future__ import annotations

import math

import pytest
import torch

from yaie_engine.errors import YaieError
from yaie_engine.params import SamplingParams
from yaie_engine.sampler import Sampler

VOCAB = 120


@pytest.fixture
def sampler() -> Sampler:
    return Sampler(VOCAB, VOCAB, ())


def test_case_23_logprobs_without_alternatives_holds_the_token_alone(sampler: Sampler) -> None:
    logits = torch.randn(1, VOCAB, generator=torch.Generator().manual_seed(1))
    token = sampler.sample(logits, [sampler.new_row(SamplingParams(temperature=0, logprobs=0), seed=0)])[0]
    assert token.logprobs == {token.token_id: (float(torch.log_softmax(logits, -1).max()), 1)}
    token = sampler.sample(logits, [sampler.new_row(SamplingParams(temperature=0), seed=0)])[0]
    assert token.logprobs is None


@pytest.mark.parametrize("num", [1, 5, 100])
def test_alternatives_are_the_best_with_their_ranks(sampler: Sampler, num: int) -> None:
    logits = torch.randn(1, VOCAB, generator=torch.Generator().manual_seed(2))
    raw = torch.log_softmax(logits, -1)[0].tolist()
    order = sorted(range(VOCAB), key=lambda i: -raw[i])
    worst = order[-1]
    params = SamplingParams(temperature=0, logprobs=num, logit_bias={worst: 100})
    token = sampler.sample(logits, [sampler.new_row(params, seed=0)])[0]
    assert token.logprobs is not None
    assert next(iter(token.logprobs)) == worst
    assert token.logprobs[worst] == (raw[worst], VOCAB)
    assert {i: rank for i, (_, rank) in token.logprobs.items() if i != worst} == {
        i: rank for rank, i in enumerate(order[:num], 1)
    }


def test_case_24_prompt_logprobs_equal_the_log_softmax(sampler: Sampler) -> None:
    """150 positions: more than one piece of the work."""
    logits = torch.randn(150, VOCAB, generator=torch.Generator().manual_seed(3)) * 2
    targets = [(7 * i) % VOCAB for i in range(150)]
    raw = torch.log_softmax(logits, -1)
    entries = sampler.prompt_logprobs(logits, targets, 2)
    assert len(entries) == 150
    for row, target, entry in zip(raw, targets, entries, strict=True):
        value, rank = entry[target]
        assert value == pytest.approx(float(row[target]), abs=1e-6)
        assert rank == int((row > row[target]).sum()) + 1
        assert {i for i, (_, r) in entry.items() if r <= 2} == set(row.topk(2).indices.tolist())
        assert len(entry) == (2 if rank <= 2 else 3)


def test_prompt_logprobs_of_nothing(sampler: Sampler) -> None:
    assert sampler.prompt_logprobs(torch.zeros(0, VOCAB), [], 3) == []


def test_broken_prompt_logits_are_an_error(sampler: Sampler) -> None:
    logits = torch.zeros(3, VOCAB)
    logits[1, 4] = math.nan
    with pytest.raises(YaieError, match="finite"):
        sampler.prompt_logprobs(logits, [1, 2, 3], 0)
    with pytest.raises(YaieError, match="shape"):
        sampler.prompt_logprobs(torch.zeros(2, VOCAB), [1, 2, 3], 0)
