"""What a client must know of the engine behind a server to stand in for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typing_extensions import TypedDict

from yaie_engine.params import SamplingParams

if TYPE_CHECKING:
    from yaie_engine import LLM

MODEL_HEADER = "x-yaie-model"
"""Of a request: the fingerprint of the model that it is meant for."""
PRIVATE = ("model", "tokenizer", "revision", "chat_template", "prefix_store")
"""Settings that may be paths of the server's machine."""


class EngineCard(TypedDict):
    """`config` holds the settings of the engine but for paths; `end_ids` are the tokens that end a text."""

    fingerprint: str
    vocab_size: int
    max_num_batched_tokens: int
    end_ids: list[int]
    special_ids: list[int]
    config: dict[str, Any]


def engine_card(llm: LLM) -> EngineCard:
    """The card of an engine."""
    return {
        "fingerprint": llm.steps_since(llm.step).model.fingerprint,
        "vocab_size": llm.vocab_size,
        "max_num_batched_tokens": llm.max_num_batched_tokens,
        "end_ids": sorted(llm.end_ids(SamplingParams())),
        "special_ids": sorted(llm.tokenizer.special_ids),
        "config": {name: value for name, value in llm.config.model_dump().items() if name not in PRIVATE},
    }
