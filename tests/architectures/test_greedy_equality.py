"""Greedy tokens of every architecture equal transformers, whatever runs beside a request and however it is run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tests.architectures.equality import COMBINED, CPU_KERNELS, GRID, SWAPS, Run, Setting, reference, run
from tests.architectures.peers import Answer, word_tokenizer
from tests.architectures.zoo import BY_NAME, ZOO, Architecture
from yaie_cuda.cpu.build import unbuildable_reason
from yaie_engine import LLM, ConfigError

torch.set_num_threads(1)
pytestmark = pytest.mark.filterwarnings("ignore")
_ANSWERS: dict[str, tuple[Any, list[Answer]]] = {}


@pytest.fixture(scope="module", autouse=True)
def _forget() -> Iterator[None]:
    yield
    _ANSWERS.clear()


def answers(architecture: Architecture) -> tuple[Any, list[Answer]]:
    """Model and reference answers; one architecture is kept at a time."""
    if architecture.name not in _ANSWERS:
        _ANSWERS.clear()
        model = architecture.build()
        _ANSWERS[architecture.name] = model, reference(architecture, model)
    return _ANSWERS[architecture.name]


def check(name: str, setting: Setting) -> Run:
    """Run one setting and hold it to everything that must be true of it."""
    architecture = BY_NAME[name]
    model, expected = answers(architecture)
    result = run(architecture, setting, model, expected)
    print(
        f"{name} {setting.name}: {result.tier}, {result.tokens} tokens, {result.ties} near ties, "
        f"{result.preemptions} preemptions, {result.evictions} evictions, {result.copies} copies, "
        f"{result.chunks} chunks of 8"
    )
    assert result.differences == []
    assert result.tier == architecture.tier
    # A sequence preempted inside its prompt leaves the rest of that prompt to its next admission.
    assert result.prefill_tokens == result.admitted_tokens - result.abandoned_tokens
    if setting.num_blocks is not None:
        assert result.preemptions > 0
    if setting.chunk and result.chunks_prefill:
        assert result.chunks > 0
    if result.shares and setting.num_blocks is not None:
        assert result.evictions > 0
    if result.shares and setting.rounds > 1:
        assert result.copies > 0
    if result.tier == "flat":
        assert all(set(calls.values()) == {1} for calls in result.attention_calls)
        assert {len(calls) for calls in result.attention_calls} == {result.num_layers}
    return result


@pytest.mark.parametrize("name", [architecture.name for architecture in ZOO])
def test_combined(name: str) -> None:
    """Big batch, chunks of 8, a pool that must preempt, and a warm cache, all at once."""
    assert check(name, COMBINED).tokens == 2 * 8 * 10


@pytest.mark.parametrize("name", ["gemma2", "bloom", "falcon-rope"])
def test_swapped_kv_comes_back_whole(name: str) -> None:
    """In tiers "flat" and "paged": what is preempted waits in host blocks and answers as if it had stayed."""
    result = check(name, SWAPS)
    assert result.swapped > 0 and result.unswapped == 0


def test_a_state_that_lies_in_no_block_is_not_swapped() -> None:
    with pytest.raises(ConfigError, match=r'num_cpu_blocks: .* is served by tier "state", whose state is not kept in'):
        LLM(BY_NAME["lfm2"].build(), tokenizer=word_tokenizer(), preemption="swap", num_cpu_blocks=8)


@pytest.mark.full
@pytest.mark.parametrize("setting", GRID, ids=lambda setting: setting.name)
@pytest.mark.parametrize("name", [architecture.name for architecture in ZOO])
def test_grid(name: str, setting: Setting) -> None:
    """Each condition by itself, in blocks of 4 and 16."""
    check(name, setting)


BY_CPU_KERNELS = ("llama", "gemma2", "gemma4-wide-global", "gpt-oss", "qwen3-moe")
"""Plain, window and softcap, heads of two sizes, sinks, norms of heads; the others have heads that no kernel takes."""
MORE_BY_CPU_KERNELS = ("qwen3", "gemma", "gemma3", "gemma4", "gemma4-shared-kv", "llama4-short")


@pytest.mark.skipif(bool(unbuildable_reason()), reason=unbuildable_reason())
@pytest.mark.parametrize(
    "name", [*BY_CPU_KERNELS, *(pytest.param(name, marks=pytest.mark.full) for name in MORE_BY_CPU_KERNELS)]
)
def test_cpu_kernels(name: str) -> None:
    """All of it at once, attended, normed and rotated by the CPU kernels."""
    assert check(name, CPU_KERNELS).tokens == 2 * 8 * 10
