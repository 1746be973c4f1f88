"""Counting tokens, and applying penalties to single entries."""

from __future__ import annotations

from collections import Counter

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.sampling.reference import adjusted
from yaie_engine.params import SamplingParams
from yaie_engine.penalties import Penalties, TokenCounts, penalise

IDS = st.lists(st.integers(0, 299), max_size=400)


@settings(max_examples=60, deadline=None)
@given(IDS, IDS)
def test_counts_equal_a_recount(prompt: list[int], output: list[int]) -> None:
    counts = TokenCounts(prompt, limit=250)
    for token in output:
        counts.push(token)
    got = dict(zip(counts.ids.tolist(), counts.counts.tolist(), strict=True))
    recount = Counter(token for token in output if token < 250)
    assert got == {token: recount[token] for token in {*prompt, *output} if token < 250}


@settings(max_examples=60, deadline=None)
@given(IDS, IDS, st.sampled_from([0.5, 1.0, 1.5]), st.sampled_from([-1.0, 0.0, 0.7]), st.sampled_from([0.0, 0.3]))
def test_penalties_equal_the_definition(
    prompt: list[int], output: list[int], repetition: float, presence: float, frequency: float
) -> None:
    logits = torch.randn(3, 300, generator=torch.Generator().manual_seed(len(prompt)))
    counts = TokenCounts(prompt, limit=300)
    for token in output:
        counts.push(token)
    changed = logits.clone()
    penalise(changed, [(1, counts, Penalties(repetition, presence, frequency))])
    params = SamplingParams(repetition_penalty=repetition, presence_penalty=presence, frequency_penalty=frequency)
    want = torch.tensor(adjusted(logits[1].tolist(), params, prompt, output))
    torch.testing.assert_close(changed[1], want, rtol=1e-5, atol=1e-4)
    assert torch.equal(changed[[0, 2]], logits[[0, 2]])


def test_counts_grow_without_bound() -> None:
    counts = TokenCounts([3], limit=2000)
    for token in range(1000):
        counts.push(token)
        counts.push(token)
    assert sorted(counts.ids.tolist()) == list(range(1000))
    assert set(counts.counts.tolist()) == {2.0}
