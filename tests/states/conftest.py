"""Engines over small recurrent and hybrid models: one that goes on in chunks, and Mamba, which cannot."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.architectures.peers import word_tokenizer
from tests.architectures.zoo import BY_NAME, Architecture
from tests.one_thread import one_thread as one_thread
from tests.poison import poisoned as poisoned
from yaie_engine import LLM, RequestOutput, SamplingParams
from yaie_engine.states.kept import KeptStates
from yaie_engine.states.service import StatePrefixes

Open = Callable[..., LLM]
GREEDY = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
PROMPT = [(5 * i + i * i) % 90 + 3 for i in range(40)]


WINDOWED = {"layer_types": ["conv", "sliding_attention", "full_attention"], "head_dim": 8}
OWN = {
    name: Architecture(name, "lfm3", "state", {**WINDOWED, "sliding_window": window})
    for name, window in (("window-6", 6), ("window-12", 12), ("window-30", 30))
}
"""A recurrent model whose attention looks back so far: shorter than a probe, between its lengths, and longer."""


def build(name: str) -> Any:
    from transformers import CONFIG_MAPPING

    found = OWN[name] if name in OWN else BY_NAME[name]
    if found.model_type not in CONFIG_MAPPING:
        pytest.skip(f"this transformers has no {found.model_type}")
    return found.build()


@pytest.fixture(scope="session")
def models() -> dict[str, Any]:
    return {}


@pytest.fixture(scope="session")
def folders(models: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """Folders of models of the zoo, each written once: a store takes no model object."""
    made: dict[str, str] = {}

    def folder(name: str) -> str:
        if name not in made:
            model = models[name] if name in models else models.setdefault(name, build(name))
            made[name] = str(tmp_path_factory.mktemp(name))
            model.save_pretrained(made[name])
            word_tokenizer().save_pretrained(made[name])
        return made[name]

    return folder


@pytest.fixture
def open_llm(models: dict[str, Any], folders: Callable[[str], str]) -> Iterator[Open]:
    """Opens engines over a model of the zoo, each made once; each engine is checked at the end."""
    made: list[LLM] = []

    def make(name: str = "lfm2", **settings: Any) -> LLM:
        settings = {"block_size": 4, "num_blocks": 128, "long_prefill_token_threshold": 8, **settings}
        if "prefix_store" in settings:
            made.append(LLM(folders(name), dtype="float32", **settings))
            return made[-1]
        model = models[name] if name in models else models.setdefault(name, build(name))
        if name == "rwkv" and made:  # its weights are written when it is loaded: one engine's load changes another's
            model = build(name)
        made.append(LLM(model, tokenizer=word_tokenizer(), **settings))
        return made[-1]

    yield make
    for llm in made:
        if llm.state == "ready":
            llm.check()
            blocks = llm.snapshot().blocks
            assert blocks.held == 0 and blocks.free + blocks.cached == blocks.total
        llm.close()


def ask(llm: LLM, prompt: list[int], params: SamplingParams = GREEDY) -> RequestOutput:
    output = llm.generate([prompt], params, use_tqdm=False)[0]
    assert output.error is None
    return output


def tokens(output: RequestOutput) -> tuple[int, ...]:
    return output.outputs[0].token_ids


def cold(open_llm: Open, name: str, prompt: list[int], params: SamplingParams = GREEDY) -> tuple[int, ...]:
    """The answer of an engine that reuses nothing."""
    with open_llm(name, enable_prefix_caching=False) as llm:
        output = ask(llm, prompt, params)
        assert output.num_cached_tokens == 0 and output.metrics.reuse == "none"
        return tokens(output)


def kept(llm: LLM) -> KeptStates:
    assert isinstance(llm.prefixes, StatePrefixes)
    llm.prefixes.entries()
    return llm.prefixes.kept
