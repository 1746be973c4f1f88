"""Once parts of a model were replaced its records are of another one: nothing is captured, saved or read any more."""

from __future__ import annotations

import pytest
import torch

from tests.store.conftest import GREEDY, Open, ask, tokens
from tests.store.test_restore import ASK, PREFIX, records
from yaie_engine import LLM, StoreError
from yaie_magic.subcommands.cache import summary

OTHER = PREFIX[::-1]


def replace(llm: LLM) -> None:
    """A layer of another model, as somebody in a notebook may put one in."""
    layer = llm._engine.runner._weights.loaded.model.model.layers[0]  # type: ignore[attr-defined]
    weight = layer.mlp.down_proj.weight
    layer.mlp.down_proj.weight = torch.nn.Parameter(weight.detach() * 1.5 + 0.1, requires_grad=False)


@pytest.mark.parametrize("asked_first", [True, False])
def test_nothing_is_captured_saved_or_read_until_a_reload(open_llm: Open, asked_first: bool) -> None:
    with open_llm() as first:
        first.save_prefix(PREFIX)
    llm = open_llm()
    assert llm.prefixes is not None
    [entry] = llm.prefixes.entries()
    store = llm.prefixes.store  # type: ignore[union-attr]
    replace(llm)
    if asked_first:
        ask(llm, [*range(200, 230)])
        assert "parts of the model were replaced" in summary(llm)
    with pytest.raises(StoreError, match="parts of the model were replaced"):
        llm.save_prefix(OTHER)
    assert "parts of the model were replaced" in summary(llm)
    store.want(OTHER[:30])
    output = ask(llm, [*OTHER[:30], 5, 6])
    assert output.num_cached_tokens == 0 or output.metrics.reuse != "store"
    answer = ask(llm, ASK)
    assert (answer.metrics.reuse, answer.num_cached_tokens) == ("none", 0)
    with pytest.raises(StoreError, match="parts of the model were replaced"):
        llm.prefixes.load([entry.label])
    assert llm.prefixes.remarks()[0].startswith("Nothing is stored or read any more")
    llm.close()
    assert len(records(llm)) == 1
    again = open_llm()
    restored = ask(again, ASK, GREEDY)
    assert restored.metrics.reuse == "store" and tokens(restored) != tokens(answer)
    assert "replaced" not in summary(again)
