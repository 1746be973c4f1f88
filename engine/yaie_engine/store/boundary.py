"""Where the system (and tools) part of a chat prompt ends, in tokens. Imports no torch."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from yaie_engine.common_start import common_start

WORTH_KEEPING = 256
"""Tokens from which on the system part of a chat is kept without being asked for."""
_KEPT = 64
_PROBES = ("0", "Zz")
Messages = list[dict[str, Any]]


class SystemParts:
    """Finds the part of a prompt that any other question after the same system text would share. Any thread.

    Templates differ, so it is not computed but seen: the same opening is rendered before two short questions, and what
    the two have in common is the part. It is remembered for the openings that came last.
    """

    def __init__(self, render: Callable[..., list[int]]) -> None:
        """`render(messages, **template)` gives prompt ids."""
        self._render = render
        self._known: OrderedDict[str, list[int]] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, messages: Messages, token_ids: list[int], template: dict[str, Any]) -> list[int]:
        """The first tokens of the prompt `token_ids`, up to the end of its system part; none where there is no such."""
        opening = []
        for message in messages:
            if message.get("role") not in ("system", "developer"):
                break
            opening.append(message)
        if not (opening or template.get("tools")) or len(token_ids) < WORTH_KEEPING:
            return []
        part = self._part(opening, template)
        return token_ids[: common_start(part, token_ids)]

    def _part(self, opening: Messages, template: dict[str, Any]) -> list[int]:
        key = json.dumps([opening, template], sort_keys=True, default=str)
        with self._lock:
            if key in self._known:
                self._known.move_to_end(key)
                return self._known[key]
        first, second = (self._render([*opening, {"role": "user", "content": probe}], **template) for probe in _PROBES)
        part = first[: common_start(first, second)]
        with self._lock:
            self._known[key] = part
            while len(self._known) > _KEPT:
                self._known.popitem(last=False)
        return part
