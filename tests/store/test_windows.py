"""Sliding windows, and attention of a model's own: prefixes are reused in memory and after a restart."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.architectures.peers import word_tokenizer
from tests.architectures.zoo import BY_NAME, ZOO
from tests.one_thread import one_thread as one_thread
from tests.store.conftest import GREEDY, ask, tokens
from yaie_engine import LLM

WINDOWED = [each.name for each in ZOO if "sliding_window" in each.settings]
PAGED = [each.name for each in ZOO if each.tier == "paged"]
QUICK = ["gemma3"]
NAMES = [*QUICK, *(pytest.param(name, marks=pytest.mark.full) for name in WINDOWED + PAGED if name not in QUICK)]
PREFIX = [(5 * i + i * i) % 90 + 3 for i in range(41)]  # several windows long
PROMPTS = [[*PREFIX, 30 + i, 5] for i in range(3)]


@pytest.mark.parametrize("name", NAMES)
def test_it_reuses_prefixes_in_memory_and_after_a_restart(tmp_path: Path, name: str) -> None:
    model = BY_NAME[name].build()
    folder, store = tmp_path / "model", str(tmp_path / "store")
    model.save_pretrained(folder)
    word_tokenizer().save_pretrained(folder)
    settings = {"block_size": 4, "num_blocks": 64, "dtype": "float32"}
    with LLM(str(folder), enable_prefix_caching=False, **settings) as plain, torch.inference_mode():
        assert plain.snapshot().model.tier == BY_NAME[name].tier
        cold = [tokens(ask(plain, prompt)) for prompt in PROMPTS]
    with LLM(str(folder), prefix_store=store, **settings) as llm:
        ask(llm, PROMPTS[0])
        again = ask(llm, PROMPTS[1])
        assert (tokens(again), again.num_cached_tokens, again.metrics.reuse) == (cold[1], len(PREFIX), "radix")
        llm.save_prefix(PREFIX)
    with LLM(str(folder), prefix_store=store, **settings) as llm:
        found = llm.generate(PROMPTS, GREEDY, use_tqdm=False)
        assert [output.num_cached_tokens for output in found] == [len(PREFIX)] * 3
        assert [tokens(output) for output in found] == cold and found[0].metrics.reuse == "store"
        llm.check()
