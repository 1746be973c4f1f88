"""An engine over a random model that nobody has to load from anywhere, for runs of any size."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from tests.engine.conftest import CHEAP
from tests.engine.models import random_llama, tokenizer
from yaie_engine import LLM


@contextmanager
def engine(**settings: Any) -> Iterator[LLM]:
    """Cheap boundaries, one torch thread; checked, idle and without a held block at the end, unless it has failed."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            llm = LLM(random_llama(), tokenizer=tokenizer(), **{**CHEAP, **settings})
        with llm:
            yield llm
    finally:
        torch.set_num_threads(threads)


def leaks(llm: LLM) -> list[str]:
    """What an idle engine still holds, in words; raises InvariantError where its books are broken."""
    llm.check()
    inner, blocks, host = llm._engine, llm.snapshot().blocks, llm.host_blocks
    found = {
        "blocks held": blocks.held,
        "blocks lost": blocks.total - blocks.free - blocks.cached - blocks.held,
        "host blocks held": host.held if host else 0,
        "sequences known": len(inner._by_sequence),
        "requests known": len(inner.requests),
        "requests at the door": inner.num_waiting,
        "private namespaces": len(llm._scheduler.private),
    }
    llm.reset()
    found["blocks lost after a reset"] = blocks.total - llm.snapshot().blocks.free
    return [f"{count} {what}" for what, count in found.items() if count]
