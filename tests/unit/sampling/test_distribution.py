"""What is drawn: against a float64 reference, against the exact distribution, and whoever else is in the batch."""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest
import torch

from tests.unit.sampling.reference import adjusted, expected
from yaie_engine.distribution import keep
from yaie_engine.params import SamplingParams
from yaie_engine.philox import uniform
from yaie_engine.ranking import ordered_topk
from yaie_engine.sampler import Sampler, SamplingRow

SIZES = (3, 40, 511, 700, 3000)


def some_params(rng: random.Random, vocab: int) -> SamplingParams:
    """A random mixture of everything that shapes the distribution."""
    return SamplingParams(
        temperature=rng.choice([0, 0.3, 0.7, 1.0, 1.0, 1.7]),
        top_p=rng.choice([1.0, 1.0, 0.95, 0.6, 0.1]),
        top_k=rng.choice([0, 0, -1, 1, 5, 40, 300, 10**6]),
        min_p=rng.choice([0, 0, 0.02, 0.3]),
        repetition_penalty=rng.choice([1, 1, 1.3, 0.8]),
        presence_penalty=rng.choice([0, 0, 0.5, -1]),
        frequency_penalty=rng.choice([0, 0, 0.4, -0.2]),
        logit_bias=rng.choice([{}, {}, {0: 3.0, vocab - 1: -2.5}]),
    )


def test_agrees_with_the_float64_reference() -> None:
    rng, agreed, close = random.Random(11), 0, 0
    for trial in range(250):
        vocab = rng.choice(SIZES)
        params = some_params(rng, vocab)
        prompt = [rng.randrange(vocab) for _ in range(20)]
        output = [rng.randrange(vocab) for _ in range(rng.randrange(6))]
        sampler = Sampler(vocab, vocab, ())
        row = sampler.new_row(params, seed=trial, index=trial % 3, prompt_token_ids=prompt)
        for token in output:
            row.push(token)
        logits = torch.randn(1, vocab, generator=torch.Generator().manual_seed(trial)) * rng.choice([1.0, 4.0])
        noise = float(uniform([trial], [trial % 3], [len(output)])[0])
        want = expected(adjusted(logits[0].tolist(), params, prompt, output), params, noise)
        if want.margin < 1e-5:
            close += 1
            continue
        assert sampler.sample(logits, [row])[0].token_id == want.token, (trial, params)
        agreed += 1
    assert agreed > 200, f"{close} draws were too close to call"


def test_kept_sets_equal_the_reference() -> None:
    rng = random.Random(5)
    for trial in range(120):
        vocab = rng.choice((3, 40, 700))
        params = some_params(rng, vocab).replace(temperature=1.0)
        logits = torch.randn(1, vocab, generator=torch.Generator().manual_seed(trial)) * 2
        want = expected(logits[0].tolist(), params, 0.5)
        row = Sampler(vocab, vocab, ()).new_row(params, seed=0)
        _, ids = ordered_topk(logits, vocab)
        kept, complete = keep(torch.softmax(logits, -1).gather(1, ids), [row], vocab)
        assert complete.all()
        if want.margin > 1e-5:
            assert sorted(ids[kept].tolist()) == want.kept, params


@pytest.mark.parametrize(
    "settings", [{}, {"temperature": 0.5}, {"top_p": 0.8}, {"top_k": 6}, {"min_p": 0.1}, {"top_k": 9, "top_p": 0.9}]
)
def test_frequencies_match_the_exact_distribution(settings: dict[str, float]) -> None:
    """Chi-square over 8,000 draws with fixed seeds; the bound is about p = 1e-4."""
    vocab, draws = 24, 8_000
    params = SamplingParams(**settings)
    logits = torch.randn(vocab, generator=torch.Generator().manual_seed(3)) * 1.5
    sampler = Sampler(vocab, vocab, ())
    rows = [sampler.new_row(params, seed=seed) for seed in range(draws)]
    counts = Counter(token.token_id for token in sampler.sample(logits.expand(draws, vocab), rows))
    kept = expected(logits.tolist(), params, 0.5).kept
    weights = {i: math.exp(float(logits[i]) / params.temperature) for i in kept}
    total = sum(weights.values())
    assert set(counts) <= set(kept)
    statistic = sum((counts[i] - draws * w / total) ** 2 / (draws * w / total) for i, w in weights.items())
    freedom = len(kept) - 1
    assert statistic < freedom * (1 - 2 / (9 * freedom) + 3.72 * math.sqrt(2 / (9 * freedom))) ** 3


def mixed_rows(sampler: Sampler, vocab: int) -> list[SamplingRow]:
    rng = random.Random(2)
    rows = []
    for i in range(40):
        params = some_params(rng, vocab).replace(logprobs=rng.choice([None, 0, 3]))
        rows.append(sampler.new_row(params, seed=i, prompt_token_ids=[rng.randrange(vocab) for _ in range(9)]))
        for _ in range(i % 4):
            rows[-1].push(rng.randrange(vocab))
    return rows


@pytest.mark.parametrize("vocab", [50, 2500, 40_000])
def test_neighbours_and_place_in_the_batch_do_not_matter(vocab: int) -> None:
    sampler = Sampler(vocab, vocab - 7, (1,))
    rows = mixed_rows(sampler, vocab - 7)
    logits = torch.randn(len(rows), vocab, generator=torch.Generator().manual_seed(8)) * 3
    alone = [sampler.sample(logits[i : i + 1], [row])[0] for i, row in enumerate(rows)]
    assert sampler.sample(logits, rows) == alone
    order = random.Random(1).sample(range(len(rows)), len(rows))
    shuffled = sampler.sample(logits[order], [rows[i] for i in order])
    assert shuffled == [alone[i] for i in order]


def test_equal_logits_are_kept_by_lowest_id() -> None:
    """Low-precision logits tie often: top_k=1 must be the greedy token, and top_k=k exactly k tokens."""
    logits = torch.zeros(64, 500)
    sampler = Sampler(500, 500, ())
    one = sampler.sample(logits, [sampler.new_row(SamplingParams(top_k=1), seed=i) for i in range(64)])
    assert {token.token_id for token in one} == {0}
    three = sampler.sample(logits, [sampler.new_row(SamplingParams(top_k=3), seed=i) for i in range(64)])
    assert {token.token_id for token in three} == {0, 1, 2}


def test_a_wide_nucleus_needs_more_candidates() -> None:
    """A flat distribution of 5,000 tokens: top_p=0.9 keeps 4,500 of them, found by the full sort."""
    vocab = 5000
    logits = torch.linspace(0, 1e-3, vocab).expand(400, vocab)
    sampler = Sampler(vocab, vocab, ())
    rows = [sampler.new_row(SamplingParams(top_p=0.9), seed=i) for i in range(400)]
    tokens = [token.token_id for token in sampler.sample(logits, rows)]
    assert min(tokens) >= 499
    assert len(set(tokens)) > 350
