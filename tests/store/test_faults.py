"""A read that fails is a miss, a write that fails loses its record; generation goes on, the next save works."""

from __future__ import annotations

import pytest

from tests.engine.faults import Fault, at_point
from tests.store.conftest import GREEDY, Open
from yaie_engine import StoreError

PROMPT = [(3 * i) % 250 for i in range(48)]
KINDS: list[type[BaseException]] = [OSError, ValueError, MemoryError]


@pytest.mark.parametrize("kind", KINDS)
def test_a_read_that_fails_is_a_miss(open_llm: Open, kind: type[BaseException]) -> None:
    first = open_llm()
    first.save_prefix(PROMPT)
    right = first.generate(PROMPT, GREEDY, use_tqdm=False)[0].outputs[0].token_ids
    first.close()
    llm = open_llm()
    with at_point("store read", Fault(kind)) as fault:
        output = llm.submit(PROMPT, GREEDY).result(60)
    assert fault.raised.is_set() and output.error is None
    assert output.metrics.reuse == "none" and output.outputs[0].token_ids == right


@pytest.mark.parametrize("kind", KINDS)
def test_a_write_that_fails_loses_its_record_only(open_llm: Open, kind: type[BaseException]) -> None:
    llm = open_llm()
    with at_point("store write", Fault(kind)) as fault, pytest.raises(StoreError):
        llm.save_prefix(PROMPT)
    assert fault.raised.is_set() and not llm.prefixes.store.entries()  # type: ignore[union-attr]
    assert llm.submit(PROMPT, GREEDY).result(60).error is None
    assert llm.save_prefix(PROMPT).num_bytes > 0
