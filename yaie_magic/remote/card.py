"""What a server tells about its models."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from yaie_engine.config import EngineConfig
from yaie_engine.errors import ConfigError
from yaie_engine.validation import did_you_mean

from .faults import RemoteError
from .figures import count

LONGEST_NAME = 256
MOST_MODELS = 1000
_FINGERPRINT = re.compile(r"[0-9A-Za-z:._-]{1,128}")


@dataclass(frozen=True, slots=True)
class ModelCard:
    """One model of a server. What only our own server tells is empty for others."""

    name: str
    own: bool = False
    max_model_len: int = 0
    vocab_size: int = 0
    max_num_batched_tokens: int = 0
    fingerprint: str = ""
    end_ids: frozenset[int] = frozenset()
    special_ids: frozenset[int] = frozenset()
    config: EngineConfig = field(default_factory=EngineConfig)


def read_cards(answer: object, url: str) -> list[ModelCard]:
    """The cards in the answer to GET /v1/models.

    Raises:
        RemoteError: it is no such answer, or there is no model.
    """
    data = answer.get("data") if isinstance(answer, dict) else None
    entries = [each for each in data[:MOST_MODELS] if isinstance(each, dict)] if isinstance(data, list) else []
    named = [each for each in entries if _is_name(each.get("id"))]
    if not named:
        raise RemoteError(f"{url} lists no model in /v1/models; is it a server with the OpenAI API?")
    return [_card(each) for each in named]


def _is_name(value: object) -> bool:
    """Names are printed: nothing that moves a cursor is one."""
    return isinstance(value, str) and 0 < len(value) <= LONGEST_NAME and value.isprintable()


def choose(cards: list[ModelCard], model: str | None, url: str) -> ModelCard:
    """The card of that name; without a name the only one.

    Raises:
        ConfigError: there is none, or there are several to choose from.
    """
    names = [card.name for card in cards]
    shown = ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
    if model is None:
        if len(cards) > 1:
            raise ConfigError(f"{url} serves several models; choose one with --model: {shown}")
        return cards[0]
    found = [card for card in cards if card.name == model]
    if not found:
        raise ConfigError(f"{url} has no model {model!r}{did_you_mean(model, names) or f'; there is {shown}'}")
    return found[0]


def _card(given: dict[str, Any]) -> ModelCard:
    name, engine = given["id"], given.get("engine")
    length = count(given.get("max_model_len")) or 0
    if given.get("owned_by") != "yaie" or not isinstance(engine, dict):
        return ModelCard(name, max_model_len=length, config=EngineConfig(model=name))
    fingerprint = engine.get("fingerprint")
    return ModelCard(
        name,
        own=True,
        max_model_len=length,
        vocab_size=count(engine.get("vocab_size")) or 0,
        max_num_batched_tokens=count(engine.get("max_num_batched_tokens")) or 0,
        fingerprint=fingerprint if isinstance(fingerprint, str) and _FINGERPRINT.fullmatch(fingerprint) else "",
        end_ids=_ids(engine.get("end_ids")),
        special_ids=_ids(engine.get("special_ids")),
        config=_config(name, engine.get("config")),
    )


def _config(name: str, given: object) -> EngineConfig:
    """The settings that a server tells and that are not the usual ones; a newer one may have others, not known here."""
    fields = EngineConfig.model_fields
    told = given if isinstance(given, dict) else {}
    known = {key: value for key, value in told.items() if key in fields and value != fields[key].get_default()}
    try:
        return EngineConfig(**{**known, "model": name})
    except ConfigError:
        return EngineConfig(model=name)


def _ids(value: object) -> frozenset[int]:
    found = value if isinstance(value, list) else []
    return frozenset(each for each in found[:100_000] if count(each) is not None)
