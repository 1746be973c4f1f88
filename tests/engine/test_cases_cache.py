"""Public bug reports, cases 1 to 5: the prefix cache."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.conftest import Make
from tests.engine.fakes import ask, assert_idle, greedy, tokens
from tests.engine.models import Reference
from yaie_engine import LLM


@pytest.mark.parametrize(("length", "cached"), [(8, 7), (7, 6), (9, 8)])
def test_case_01_a_fully_cached_prompt_still_computes_its_last_token(
    llm: LLM, reference: Reference, length: int, cached: int
) -> None:
    prompt = list(range(length))
    expected = reference.greedy(prompt, 12)
    for hit in (0, cached, cached):
        output = ask(llm, prompt)
        assert tokens(output) == expected
        assert output.num_cached_tokens == hit


@pytest.mark.parametrize("chunk", [0, 8])
def test_case_02_a_warm_cache_gives_the_answers_of_a_cold_one(make_llm: Make, reference: Reference, chunk: int) -> None:
    system = [(7 * i) % 250 for i in range(42)]
    questions = [[*system, 100 + i, 3, *range(i, 2 * i)] for i in range(5)]
    cold = make_llm(long_prefill_token_threshold=chunk, enable_prefix_caching=False)
    warm = make_llm(long_prefill_token_threshold=chunk)
    for i, question in enumerate(questions):
        expected = reference.greedy(question, 12)
        first, second, third = ask(cold, question), ask(warm, question), ask(warm, question)
        assert tokens(first) == tokens(second) == tokens(third) == expected
        assert first.num_cached_tokens == 0
        assert second.num_cached_tokens == (42 if i else 0)
        assert third.num_cached_tokens == len(question) - 1
    counters = warm.snapshot().counters
    assert counters.cached_tokens > 4 * 42 and counters.copies > 0
    assert cold.snapshot().counters.cached_tokens == 0


def test_case_03_prompts_shorter_than_a_block(llm: LLM, reference: Reference) -> None:
    for round_ in range(3):
        for length in (1, 2, 3):
            prompt = [40 + length] * length
            output = ask(llm, prompt, greedy(5))
            assert tokens(output) == reference.greedy(prompt, 5)
            assert output.num_cached_tokens == (length - 1 if round_ else 0)
    assert_idle(llm)


def test_case_04_shared_prefixes_are_counted_once(make_llm: Make, reference: Reference) -> None:
    llm = make_llm(max_num_seqs=8)
    prompts = [[group * 9 + i for i in range(10)] + [200 + k] for k in range(8) for group in range(6)]
    outputs = llm.generate(prompts, greedy(6), use_tqdm=False)
    for prompt, output in zip(prompts, outputs, strict=True):
        assert tokens(output) == reference.greedy(prompt, 6)
    assert_idle(llm)
    snapshot = llm.snapshot()
    assert snapshot.counters.evictions > 0
    assert sum(len(node.blocks) for node in snapshot.tree) == snapshot.blocks.cached
    again = ask(llm, prompts[-1], greedy(6))
    assert tokens(again) == tokens(outputs[-1]) and again.num_cached_tokens > 0


class SameHash(int):
    """A token id that collides with every other."""

    def __hash__(self) -> int:
        return 7


def test_case_05_a_hash_collision_never_gives_foreign_kv(make_llm: Make, reference: Reference) -> None:
    """One after another, then at once, where who begins alike waits for each other."""
    llm, burst = make_llm(num_blocks=128), make_llm(num_blocks=128)

    def collide(ids: list[int]) -> list[Any]:
        return [SameHash(i) for i in ids]

    prompts = [[1, 2, 3, 4, 5, 6, 7, 8, 9], [9, 8, 7, 6, 5, 4, 3, 2, 1], [1, 2, 3, 4, 90, 91, 92, 93, 94]]
    for prompt, hit in zip(prompts, (0, 0, 4), strict=True):
        output = ask(llm, collide(prompt))
        assert tokens(output) == reference.greedy(prompt, 12)
        assert output.num_cached_tokens == hit
    outputs = burst.generate(
        [collide([*prompt, *range(60, 130)]) for prompt in prompts], use_tqdm=False, params=greedy(6)
    )
    for prompt, output in zip(prompts, outputs, strict=True):
        assert tokens(output) == reference.greedy([*prompt, *range(60, 130)], 6)
    for engine in (llm, burst):
        keys = [key for node in engine._scheduler.tree.nodes() for key in node.children]
        assert sum(isinstance(key, SameHash) for key in keys) > 1, "the tree never saw a collision"
    assert hash(SameHash(1)) == hash(SameHash(2))
