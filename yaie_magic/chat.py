"""A conversation that keeps the token ids it has seen, so that the next turn begins with exactly these.

A server that knows no token ids from outside is sent the messages instead, as its API wants them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .options import UsageProblem
from .run import Run

if TYPE_CHECKING:
    from yaie_engine import SamplingParams
    from yaie_engine.serving import Engine

Message = dict[str, str]


@dataclass
class Chat:
    """One named conversation. `ids` are prompt and output of all turns so far: text that is encoded again need not give
    the same ids, and then the cache could not be used."""

    name: str
    system: str | None = None
    messages: list[Message] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    pending: Run | None = None
    model: str = ""
    """Whose ids they are: the fingerprint of a model elsewhere, which may be another one after a new connection."""

    @property
    def num_turns(self) -> int:
        """Finished turns."""
        return sum(message["role"] == "assistant" for message in self.messages)

    @property
    def _opening(self) -> list[Message]:
        return [{"role": "system", "content": self.system}] if self.system is not None else []

    def send(self, llm: Engine, text: str, params: SamplingParams) -> Run:
        """Ask for the answer to `text` as the next turn, which joins the conversation when it ends.

        Raises:
            UsageProblem: the turn before is still running.
            YaieError: the engine does not take the request.
        """
        from yaie_engine.serving import NotOffered

        if self.pending is not None and self.pending.running:
            raise UsageProblem(f"session {self.name!r} is still answering; wait() for it, cancel() it, or use --new")
        try:
            ids = self._prompt(llm, text)
        except NotOffered:
            messages = [*self._opening, *self.messages, {"role": "user", "content": text}]
            run = Run(llm.submit_chat(messages, params), llm, text, params)
        else:
            run = Run(llm.submit(ids, params), llm, ids, params)
        self._begin(text, run)
        return run

    def _prompt(self, llm: Engine, text: str) -> list[int]:
        """The token ids of the conversation with `text` as its next turn."""
        user = {"role": "user", "content": text}
        model = getattr(llm, "fingerprint", "")
        if model != self.model:
            self.ids, self.model = [], model
        if self.ids:
            tail = self._continuation(llm, user)
            if tail:
                seam = 1 if tail[0] == self.ids[-1] else 0  # the output ends with the token that closes the turn
                return [*self.ids, *tail[seam:]]
        return llm.chat_ids([*self._opening, *self.messages, user])

    def _continuation(self, llm: Engine, user: Message) -> list[int]:
        """What the template puts between the last answer and the next one; empty when that cannot be told.

        The conversation up to the last answer is a prompt; the same with an empty answer and the new turn begins with
        that prompt, and the rest is what closes the answer, asks the question and opens the next answer.
        """
        before = [*self._opening, *self.messages[:-1]]
        opened = llm.chat_ids(before)
        full = llm.chat_ids([*before, {"role": "assistant", "content": ""}, user])
        return full[len(opened) :] if full[: len(opened)] == opened else []

    def _begin(self, text: str, run: Run) -> None:
        """A turn was sent."""
        self.pending = run
        run.at_end(lambda run: self._end(text, run))

    def _end(self, text: str, run: Run) -> None:
        """Keep the turn, a cancelled one with the text it has. A failed one, or one without any text, never was."""
        if self.pending is not run:
            return
        self.pending = None
        if run.output is None or run.output.error is not None:
            return
        answer = run.output.outputs[0]
        if not (answer.token_ids or answer.text):
            return
        self.messages += [{"role": "user", "content": text}, {"role": "assistant", "content": answer.text}]
        self.ids = [*run.output.prompt_token_ids, *answer.token_ids] if answer.token_ids else []

    def forget(self) -> int:
        """Start anew with the same system text; how many turns were forgotten."""
        turns = self.num_turns
        self.messages, self.ids, self.pending = [], [], None
        return turns
