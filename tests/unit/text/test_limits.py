"""Room for the output."""

from __future__ import annotations

import pytest

from yaie_engine.errors import CapacityError, RequestError
from yaie_engine.limits import resolve_max_tokens
from yaie_engine.params import SamplingParams


@pytest.mark.parametrize(
    ("settings", "prompt", "room", "expected"),
    [
        ({}, 10, 4096, 256),
        ({}, 10, 100, 90),
        ({}, 4095, 4096, 1),
        ({"max_tokens": 90}, 10, 100, 90),
        ({"max_tokens": 500}, 10, 4096, 500),
        ({"min_tokens": 300}, 10, 4096, 300),
        ({"min_tokens": 5}, 10, 100, 90),
    ],
)
def test_tokens_to_generate(settings: dict[str, int], prompt: int, room: int, expected: int) -> None:
    assert resolve_max_tokens(SamplingParams(**settings), prompt, room) == expected


def test_case_26_prompts_at_the_edge_of_the_context() -> None:
    assert resolve_max_tokens(SamplingParams(), 99, 100) == 1
    for prompt in (100, 101):
        with pytest.raises(CapacityError, match=rf"{prompt} tokens.*100"):
            resolve_max_tokens(SamplingParams(), prompt, 100)


@pytest.mark.parametrize("field", ["max_tokens", "min_tokens"])
def test_case_26_too_many_tokens_name_both_numbers(field: str) -> None:
    with pytest.raises(RequestError, match=rf"{field}=91.*10 tokens.*90.*100"):
        resolve_max_tokens(SamplingParams(**{field: 91}), 10, 100)


def test_case_25_an_empty_prompt() -> None:
    with pytest.raises(RequestError, match="empty"):
        resolve_max_tokens(SamplingParams(), 0, 100)
