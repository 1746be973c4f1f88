"""The prompts of a batch: from a cell body with separators, from JSON lines, or from a list in the notebook."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .options import UsageProblem
from .prompt import interpolate, prompt_of
from .run import Prompt

SEPARATOR = "---"


@dataclass(frozen=True, slots=True)
class Item:
    """One prompt with the sampling parameters that are its own."""

    prompt: Prompt
    params: Mapping[str, Any] = field(default_factory=dict)


def split_body(body: str, separator: str = SEPARATOR) -> list[Item]:
    """The parts between lines that consist of the separator; each is a prompt, byte for byte.

    Raises:
        UsageProblem: a part is empty.
    """
    parts: list[list[str]] = [[]]
    for line in prompt_of(body).split("\n"):
        if line.rstrip() == separator:
            parts.append([])
        else:
            parts[-1].append(line)
    texts = ["\n".join(part) for part in parts]
    for number, text in enumerate(texts, 1):
        if not text.strip():
            raise UsageProblem(f"prompt {number} is empty; a line of {separator} stands between two prompts only")
    return [Item(text) for text in texts]


def split_json_lines(body: str) -> list[Item]:
    """One prompt from each line that is not blank.

    Raises:
        UsageProblem: a line is not JSON, or is neither a text nor an object with a prompt.
    """
    items = []
    for number, line in enumerate(prompt_of(body).split("\n"), 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UsageProblem(f"line {number} is not JSON: {error}") from None
        items.append(_item(value, f"line {number}"))
    return items


def from_list(values: Any, name: str) -> list[Item]:
    """The prompts in a list: texts, token ids, or dicts with a prompt.

    Raises:
        UsageProblem: it is no list, is empty, or holds something else.
    """
    if isinstance(values, str | bytes | Mapping) or not hasattr(values, "__iter__"):
        raise UsageProblem(f"--from {name}: {type(values).__name__} is not a list of prompts")
    items = [_item(value, f"{name}[{index}]") for index, value in enumerate(values)]
    if not items:
        raise UsageProblem(f"--from {name}: the list is empty")
    return items


def fill(items: list[Item], names: Mapping[str, Any] | None) -> list[Item]:
    """Replace `{name}` in the texts when names are given."""
    if names is None:
        return items
    return [
        Item(interpolate(item.prompt, names), item.params) if isinstance(item.prompt, str) else item for item in items
    ]


def _item(value: Any, where: str) -> Item:
    if isinstance(value, Mapping):
        if "prompt" not in value:
            raise UsageProblem(f'{where} has no "prompt"')
        own = {str(key): entry for key, entry in value.items() if key != "prompt"}
        return Item(_prompt(value["prompt"], where), own)
    return Item(_prompt(value, where))


def _prompt(value: Any, where: str) -> Prompt:
    if isinstance(value, str) and value:
        return value
    if isinstance(value, list | tuple) and value and all(type(token) is int for token in value):
        return list(value)
    kind = "empty" if value in ("", [], ()) else f"a {type(value).__name__}"
    raise UsageProblem(f"{where} is {kind}: a prompt is a text or a list of token ids")
