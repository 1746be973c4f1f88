"""What a cell gives back: the text and everything known about it, without the engine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from .interrupt import Interrupted
from .run import Prompt, Run

if TYPE_CHECKING:
    from yaie_engine import CompletionOutput, Logprob, SamplingParams, YaieError
    from yaie_engine.outputs import Reuse
    from yaie_widgets.live.generation_row import Row

    from .inspector import Inspector


HOOK = "_ipython_display_"  # what IPython calls to show an object; set on one object only, to show nothing once


class _Figures:
    """Read as attributes or like a dict: `usage.prompt`, `usage["prompt"]`, `dict(usage)`."""

    __slots__ = ()

    def keys(self) -> list[str]:
        return [field.name for field in fields(self)]  # type: ignore[arg-type]

    def __getitem__(self, name: str) -> Any:
        if name not in self.keys():
            raise KeyError(name)
        return getattr(self, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())


@dataclass(frozen=True, slots=True)
class Usage(_Figures):
    """Token counts; `cached` prompt tokens were taken from the prefix cache."""

    prompt: int
    completion: int
    cached: int


@dataclass(frozen=True, slots=True)
class Timings(_Figures):
    """Seconds: in the queue, to the first token, per further token, in all."""

    queue: float
    ttft: float | None
    tpot: float | None
    total: float


class Completion:
    """One completion of a prompt. Live while the request runs, plain data afterwards; it keeps no engine alive."""

    def __init__(self, run: Run, index: int = 0, format: str = "text") -> None:
        self._run = run
        self.index = index
        self.format = format

    # ---- what was asked

    @property
    def request_id(self) -> str:
        """The id under which snapshots and history know the request."""
        return self._run.request_id

    @property
    def prompt(self) -> Prompt:
        """The prompt as it was sent: text, or token ids in a chat."""
        return self._run.prompt

    @property
    def params(self) -> SamplingParams:
        """The sampling parameters in force."""
        return self._run.params

    # ---- what came

    @property
    def text(self) -> str:
        """The text so far; whole when `done`."""
        self._run.settle(0)
        return self._run.text(self.index)

    @property
    def tokens(self) -> tuple[int, ...]:
        """The generated token ids, the one that ended it included. Empty while running."""
        choice = self._choice
        return choice.token_ids if choice else ()

    @property
    def logprobs(self) -> tuple[dict[int, Logprob], ...] | None:
        """One `{token id: Logprob}` per token where `--logprobs` asked for them."""
        choice = self._choice
        return choice.logprobs if choice else None

    @property
    def finish_reason(self) -> str | None:
        """ "stop", "length", "cancelled" or "error"; None while running."""
        choice = self._choice
        return choice.finish_reason if choice else "cancelled" if self._run.cancelled else None

    @property
    def stop_reason(self) -> str | int | None:
        """The stop string or token id that ended it, "timeout", or None."""
        choice = self._choice
        return choice.stop_reason if choice else None

    @property
    def error(self) -> YaieError | None:
        """Why the request failed, when its finish_reason is "error"."""
        self._run.settle(0)
        return self._run.output.error if self._run.output else None

    @property
    def usage(self) -> Usage:
        """Tokens of the prompt, of this completion, and of the prompt from the cache; of a running one as it stands. 0
        also stands for what a server does not tell."""
        choice, output = self._choice, self._run.output
        if choice is None or output is None:
            now = self._run.progress(self.index)
            if now is None:  # a copy of a running one
                return Usage(0, 0, 0)
            facts = now.facts
            return Usage(facts.num_prompt_tokens, facts.num_output_tokens, facts.num_cached_tokens or 0)
        tokens = output.num_output_tokens(self.index)
        return Usage(output.num_prompt_tokens or 0, tokens or 0, output.num_cached_tokens)

    @property
    def reuse(self) -> Reuse:
        """Where the cached part of the prompt came from: "none", "radix" (the engine's blocks), "host", "store" or
        "state"; "none" while running."""
        self._run.settle(0)
        return self._run.output.metrics.reuse if self._run.output else "none"

    @property
    def cache_known(self) -> bool:
        """Whether it is known how much of the prompt came from the cache: not every server tells."""
        output = self._run.output
        return output is None or output.counts is None or output.counts.cached is not None

    @property
    def timings(self) -> Timings | None:
        """Seconds of queue, first token, each further token and the whole; None while running."""
        self._run.settle(0)
        if self._run.output is None:
            return None
        metrics = self._run.output.metrics
        return Timings(metrics.queue_s, metrics.ttft_s, metrics.tpot_s, metrics.total_s)

    @property
    def done(self) -> bool:
        """Whether it has ended, in whatever way."""
        return not self._run.running

    # ---- what can be done

    def wait(self, timeout: float | None = None) -> Completion:
        """Wait for the end and return self.

        Raises:
            TimeoutError: it has not ended within `timeout` seconds; it goes on running.
            Interrupted: on Ctrl-C; it goes on running, too.
        """
        try:
            ended = self._run.settle(timeout)
        except KeyboardInterrupt:
            raise Interrupted("the wait was interrupted, the request goes on; cancel() ends it") from None
        if not ended:
            raise TimeoutError(f"still running after {timeout} s; cancel() ends it")
        return self

    def cancel(self) -> None:
        """End the request (all its choices) at the engine's next step; the text so far is kept."""
        self._run.cancel()

    def show(self) -> None:
        """Display text and figures in full."""
        from IPython.display import display

        from .render import bundle

        display(bundle([self]), raw=True)  # type: ignore[no-untyped-call]

    def explain(self) -> Any:
        """What the engine did for it, in words and numbers.

        Raises:
            EngineDeadError: its engine was unloaded, or no longer remembers the request.
        """
        from .explain import explain_completion

        return explain_completion(self)

    def inspect(self, colour: str = "probability") -> Inspector:
        """Its tokens one by one: how likely each was, what else was, and branches from there.

        Raises:
            RequestError: it still runs.
        """
        from .inspector import inspect_completion

        return inspect_completion(self, colour)

    # ---- how it looks

    def row(self) -> Row:
        """Its figures as the views show them; of a running one as it stands."""
        from .feed import RunFeed

        return RunFeed(self._run, self.index).look(stopping=False)

    @property
    def _choice(self) -> CompletionOutput | None:
        self._run.settle(0)
        return self._run.output.outputs[self.index] if self._run.output else None

    def __str__(self) -> str:
        return self.text

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != HOOK}

    def __repr__(self) -> str:
        """One line that is the same on every run: no address, no time, no id."""
        if not self.done:
            return "<Completion: cancelled>" if self._run.cancelled else "<Completion: running>"
        from .render import summary

        return f"<Completion: {summary(self)}>"


class Completions(list[Completion]):
    """A list of completions whose repr is short."""

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def __repr__(self) -> str:
        return "[" + ",\n ".join(map(repr, self)) + "]"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))

    def wait(self, timeout: float | None = None) -> Completions:
        """Wait for all of them, each for at most `timeout` seconds."""
        for completion in self:
            completion.wait(timeout)
        return self

    def cancel(self) -> None:
        """Cancel those that still run."""
        for completion in self:
            completion.cancel()

    @property
    def done(self) -> bool:
        """Whether all have ended."""
        return all(completion.done for completion in self)

    def show(self) -> None:
        """Display all of them in full."""
        for completion in self:
            completion.show()


Result = Completion | Completions


def completions_of(run: Run, format: str = "text") -> Result:
    """One Completion, or a list of them for n > 1."""
    found = Completions(Completion(run, index, format) for index in range(run.params.n))
    return found[0] if run.params.n == 1 else found
