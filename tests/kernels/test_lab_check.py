"""A whole check of the kernel lab, in this process: what it finds in kernels that are wrong in a way of their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from yaie_cuda import sources
from yaie_cuda.emulator.build import emulator_reason
from yaie_cuda.lab.check import Check
from yaie_cuda.lab.request import CheckRequest

pytestmark = [
    pytest.mark.timeout(200),
    pytest.mark.skipif(bool(emulator_reason()), reason=emulator_reason() or "kernels can be emulated"),
]
SPLIT = ("paged_attention_decode", "paged_attention_prefill")


@pytest.fixture(autouse=True)
def _built_in_sources() -> Iterator[None]:
    yield
    sources.restore()


def found(kernel: str, text: str) -> list[dict[str, Any]]:
    """The cases as a check without compiler and sanitizers tells them."""
    told: list[tuple[str, Any]] = []
    request = CheckRequest(kernel, text, label="HEAD_DIM=64", arch=None, sanitize=False)
    Check(request, lambda kind, data: told.append((kind, data))).run()
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
