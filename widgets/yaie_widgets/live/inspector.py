"""The token inspector in a notebook: an answer token by token, its alternatives, and branches made by a click."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol

from yaie_widgets.inspection import Answer
from yaie_widgets.inspection.scale import SCALES

from .view import LiveView, Message


class Inspected(Protocol):
    """What the view shows and asks; `answers[0]` is the original, the others are branches."""

    answers: list[Answer]
    colour: str

    @property
    def branches(self) -> list[Any]:
        """The completions of the branches."""

    def branch(self, position: int, token_id: int, of: int = 0) -> Any:
        """Start a branch of answer `of`."""

    def stop(self, number: int) -> None:
        """End a branch that is being written."""

    def listen(self, listener: Callable[[int], None]) -> None:
        """Call `listener` with the number of each answer that is new or has changed."""


class TokenInspector(LiveView):
    """Follows an inspector: sends new answers whole and growing ones by what they grew."""

    NAME = "inspector"

    def __init__(self, source: Inspected) -> None:
        self._source = source
        self._sent: dict[int, int] = {}
        super().__init__()
        source.listen(self._changed)

    @property
    def branches(self) -> list[Any]:
        """The completions of the branches, in the order made."""
        return self._source.branches

    def branch(self, position: int, token_id: int, of: int = 0) -> Any:
        """Continue answer `of` with another token at `position` of its output."""
        return self._source.branch(position, token_id, of)

    def whole(self) -> Message:
        answers = list(self._source.answers)
        self._sent = {number: len(answer.output) for number, answer in enumerate(answers)}
        return {
            "kind": "whole",
            "answers": [answer.to_dict() for answer in answers],
            "scales": SCALES,
            "colour": self._source.colour,
        }

    def on_message(self, kind: str, content: Message) -> None:
        """A page asks for a branch or for its end; both happen on a thread of their own."""
        if kind == "branch":
            asked = (content.get("position"), content.get("token"), content.get("answer"))
            if all(type(each) is int for each in asked):
                threading.Thread(target=self._branch, args=asked, name="yaie-branch", daemon=True).start()
        elif kind == "stop" and type(number := content.get("answer")) is int and 0 < number < len(self._source.answers):
            self._source.stop(number)

    def _branch(self, position: int, token_id: int, of: int) -> None:
        """What keeps it from happening is said in the view, in one line."""
        try:
            self.branch(position, token_id, of)
        except Exception as error:
            self.post("refused", text=f"Not branched: {' '.join(str(error).split())}")

    def _changed(self, number: int) -> None:
        with self.lock:
            answer = self._source.answers[number]
            known = self._sent.get(number)
            self._sent[number] = len(answer.output)
            if known is None or answer.reason is not None:
                self.post("answer", number=number, answer=answer.to_dict())
            else:
                self.post("grown", number=number, **answer.growth(known))

    def __repr__(self) -> str:
        return f"<TokenInspector: {len(self.branches)} {'branch' if len(self.branches) == 1 else 'branches'}>"
