"""How many tokens of each choice a stream has told about, when it tells their log-probabilities."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from yaie_engine import CompletionOutput

    from .job import Job


class TokensSent:
    """Counts by prompt and choice. Text may be held back while its tokens are known, so that a chunk's tokens may be
    ahead of its text; over a whole stream both are complete."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._sent: dict[tuple[int, int], int] = {}

    def count(self, prompt: int, choice: int) -> int:
        """Tokens sent so far."""
        return self._sent.get((prompt, choice), 0)

    async def new(self, prompt: int, choice: int) -> tuple[CompletionOutput, int] | None:
        """A running choice and where its unsent tokens begin; None when it has ended, or has none."""
        output = await self._job.so_far(prompt)
        if output is None:
            return None
        found, start = output.outputs[choice], self.count(prompt, choice)
        if len(found.token_ids) <= start:
            return None
        self._sent[prompt, choice] = len(found.token_ids)
        return found, start
