"""A whole check of the kernel lab, in this process: what it finds in kernels that are wrong in a way of their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from yaie_cuda import sources
from yaie_cuda.emulator.build import emulator_reason
from yaie_cuda.lab.cases import cases_of
from yaie_cuda.lab.check import Check
from yaie_cuda.lab.request import CheckRequest, ModelSizes
from yaie_cuda.lab.result import CaseResult

pytestmark = [
    pytest.mark.timeout(200),
    pytest.mark.skipif(bool(emulator_reason()), reason=emulator_reason() or "kernels can be emulated"),
]
SPLIT = ("paged_attention_decode", "paged_attention_prefill")


@pytest.fixture(autouse=True)
def _built_in_sources() -> Iterator[None]:
    yield
    sources.restore()


def tell(request: CheckRequest) -> list[tuple[str, Any]]:
    """All that a check tells."""
    told: list[tuple[str, Any]] = []
    Check(request, lambda kind, data: told.append((kind, data))).run()
    return told


def found(kernel: str, text: str) -> list[dict[str, Any]]:
    """The cases as a check without compiler and sanitizers tells them."""
    told = tell(CheckRequest(kernel, text, label="HEAD_DIM=64", arch=None, sanitize=False))
    assert not [data for kind, data in told if kind == "problem"]
    return [data for kind, data in told if kind == "case"]


@pytest.mark.parametrize("kernel", SPLIT)
def test_counters_that_are_left_are_found_by_a_second_run(kernel: str) -> None:
    """Right once on every launcher, and wrong from then on."""
    text = sources.built_in(kernel)
    place = text.index("\n", text.index("if (!last_of(p.counters + ")) + 1
    count = "    __syncthreads(); if (threadIdx.x == 0) atomicAdd(p.counters, 100);\n"
    wrong = [case for case in found(kernel, text[:place] + count + text[place:]) if case["how"]]
    assert wrong and all("second run" in case["how"] for case in wrong)


def test_the_draw_is_checked_at_the_vocabulary_of_an_engine() -> None:
    """Wrong for that many tokens only."""
    text = sources.built_in("top_k_top_p_sample")
    place = "if (step == 2 && threadIdx.x == 0) p.out[row_id] = id;"
    assert text.count(place) == 1
    wrong = text.replace(place, place.replace("= id;", "= p.vocab == 3000 ? 77 : id;"))
    told = tell(CheckRequest("top_k_top_p_sample", wrong, sizes=(ModelSizes(vocab=3000),)))
    cases = [data for kind, data in told if kind == "case"]
    failed = [case["title"] for case in cases if case["differences"] and not CaseResult.from_dict(case).ok]
    assert failed == ["7 rows of 3,000 tokens, as in the engine"]


@pytest.mark.parametrize("kernel", ["silu_and_mul", "copy_blocks"])
def test_what_an_engine_runs_and_no_case_does_is_not_taken(kernel: str) -> None:
    also = (((("SCALAR", "bfloat16"), ("WIDTH", "2")), 64, 0),)
    told = tell(CheckRequest(kernel, sources.built_in(kernel), also=also))
    label = f"{kernel}[SCALAR=bfloat16 WIDTH=2]"
    problems = [data["words"] for kind, data in told if kind == "problem"]
    assert problems == [f"an engine runs {label}, and no case does: not checked for it"]


def test_the_sizes_of_every_case_builder_are_those_it_is_given() -> None:
    for kernel, title in (("top_k_top_p_sample", "7 rows of 300 "), ("apply_penalties", "3 rows of 300 ")):
        titles = [case.title for case in cases_of(kernel, [ModelSizes(vocab=300)])]
        assert any(each.startswith(title) for each in titles)
