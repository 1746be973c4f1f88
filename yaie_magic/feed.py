"""A request as its live view reads it: figures while it runs, and the same figures of its output once it has ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from yaie_widgets.live.generation_prompt import PromptView, split_prompt
from yaie_widgets.live.generation_row import Row, final_row, live_row

from .render import static_mode
from .run import Run

if TYPE_CHECKING:
    from collections.abc import Sequence


class RunFeed:
    """One choice of one request. Reads only: whoever waits for the request settles it."""

    def __init__(self, run: Run, index: int = 0) -> None:
        self._run, self._index = run, index
        self._row = Row(self.label, "waiting", "waiting", "waiting", "", ("", ""), (0, 0, 0, 1, 1), ())

    @property
    def label(self) -> str:
        """The id shown in views: choices after the first carry their index."""
        return self._run.request_id if self._index == 0 else f"{self._run.request_id}/{self._index}"

    def look(self, stopping: bool) -> Row:
        """How it stands."""
        if self._run.outcome() is not None:
            return ended_row(self._run, self._index)
        now = self._run.progress(self._index)
        if now is not None:  # else it has just ended, and its output is on the way
            ids, cached = now.prompt_token_ids, now.facts.num_cached_tokens
            self._row = live_row(self.label, now, prompt_of_run(self._run, ids, cached), stopping)
        return self._row

    def read(self, seen: int) -> tuple[str, int]:
        """The text after the first `seen` pieces, and how many there are now."""
        pieces = self._run.pieces(self._index)
        number = len(pieces)
        return "".join(pieces[seen:number]), number

    def stop(self) -> None:
        """End it; returns at once."""
        self._run.cancel()


def ended_row(run: Run, index: int) -> Row:
    """The figures of a request that has ended; without times and ids where output must not change between runs."""
    output, times = run.outcome(), not static_mode()
    if output is None:
        raise ValueError(f"request {run.request_id} is still running")
    started = output.metrics.first_step is not None or any(choice.token_ids for choice in output.outputs)
    prompt = prompt_of_run(run, output.prompt_token_ids, output.num_cached_tokens if started else None)
    label = (run.request_id if index == 0 else f"{run.request_id}/{index}") if times else f"Completion {index + 1}"
    return final_row(label, output, index, prompt, model=_model(run), times=times)


def prompt_of_run(run: Run, ids: Sequence[int], cached: int | None) -> PromptView:
    """The prompt with its cached part, made once: it is decoded to find where the tokens part."""
    if run.marked is None or run.marked[0] != cached:
        engine = run.engine
        decode = None if engine is None else lambda some: engine.detokenize(list(some))
        text = run.prompt
        if not isinstance(text, str):
            text = f"{len(ids):,} token ids" if decode is None else decode(ids)
        run.marked = cached, split_prompt(text, ids, cached, decode)
    return run.marked[1]


def _model(run: Run) -> str:
    engine = run.engine
    return "" if engine is None else str(engine.config.model).rstrip("/\\").replace("\\", "/").rpartition("/")[2]
