"""Workloads: the same lengths in every repetition, new ids in each, and what they are named for."""

from __future__ import annotations

import itertools
import json
import random

import pytest

from yaie_magic.bench.trial import FIGURES, Served, Trial, figures
from yaie_magic.bench.workloads import (
    FULL,
    SMALL,
    WORKLOADS,
    Ids,
    Workload,
    ids_of_text,
    make,
    random_ids,
    scaled,
)

IDS = random_ids(32_000)


def common(first: tuple[int, ...], second: tuple[int, ...]) -> int:
    pairs = zip(first, second, strict=True)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), len(first))


@pytest.mark.parametrize("name", WORKLOADS)
def test_repetitions_differ_in_ids_alone(name: str) -> None:
    first, again, second = (make(name, IDS, FULL, repetition) for repetition in (1, 1, 2))
    assert first == again
    shape = [(len(ask.prompt), ask.tokens) for ask in first.asks]
    assert shape == [(len(ask.prompt), ask.tokens) for ask in second.asks]
    assert all(a.prompt[0] != b.prompt[0] for a, b in zip(first.asks, second.asks, strict=True))
    assert all(300 <= i < 31_700 for ask in first.asks for i in ask.prompt)


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_workload_travels_as_json(name: str) -> None:
    made = make(name, IDS, SMALL)
    assert Workload.from_dict(json.loads(json.dumps(made.to_dict()))) == made


def test_the_sizes_are_those_that_are_documented() -> None:
    lengths = {name: [len(ask.prompt) for ask in make(name, IDS).asks] for name in WORKLOADS}
    assert lengths["W1"] == [64] and lengths["W4"] == [1056, 1056]
    assert len(lengths["W2"]) == 32 and min(lengths["W2"]) >= 32 and max(lengths["W2"]) <= 256
    assert lengths["W3"] == lengths["W3s"] == [1056] * 16 and lengths["W5"] == [2048] * 21
    assert scaled(FULL, 2).burst == 32 and scaled(FULL, 64).burst == 256


def test_siblings_share_their_beginning_and_nothing_more() -> None:
    first, second, *_ = make("W3", IDS).asks
    assert first.prompt[:1024] == second.prompt[:1024] and first.prompt[1024] != second.prompt[1024]


def test_edits_lie_at_depths_spread_evenly_over_the_prompt() -> None:
    asks = make("W5", IDS).asks
    depths = [common(a.prompt, b.prompt) for a, b in itertools.pairwise(asks)]
    expected = [2040 * (2 * i + 1) // 40 for i in range(20)]
    assert sorted(depths) == expected and depths != expected


def test_text_goes_on_at_its_beginning() -> None:
    piece = ids_of_text([1, 2, 3])(random.Random(0), 7)
    assert all((b - a) % 3 == 1 for a, b in itertools.pairwise(piece))
    with pytest.raises(ValueError, match="without tokens"):
        ids_of_text([])


@pytest.mark.parametrize("ids", [random_ids(16), ids_of_text([5])])
def test_small_vocabularies_and_dull_texts_do(ids: Ids) -> None:
    if ids(random.Random(0), 2) == [5, 5]:
        with pytest.raises(StopIteration):  # a text of one token cannot be edited
            make("W5", ids, SMALL)
    else:
        assert len(make("W5", ids, SMALL).asks) == 5


def test_figures_follow_from_times() -> None:
    served = (Served(0.2, 1.1, tuple(range(10))), Served(0.04, 0.13, tuple(range(10))), Served(0.06, 0.15, (1, 2)))
    trial = Trial(2.0, served)
    assert Trial.from_dict(json.loads(json.dumps(trial.to_dict()))) == trial
    assert figures("W1", trial) == pytest.approx({"tpot_ms": 90.0, "ttft_ms": 60.0, "output_tokens_per_s": 11.0})
    assert figures("W4", trial) == pytest.approx({"warm_ttft_ms": 40.0, "cold_ttft_ms": 200.0})
    assert figures("W3s", trial)["later_ttft_ms"] == pytest.approx(50.0)
    assert figures("W5", trial)["edit_ttft_ms"] == pytest.approx(50.0)
    assert set(FIGURES) == set(WORKLOADS)
