"""`%%batch`: many prompts at once, results in their order."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .aside import start
from .batch import SEPARATOR, Item, fill, from_list, split_body, split_json_lines
from .batch_view import BatchView, choose_batch_view
from .cell_setup import CellCall, engine_of
from .cells import GRACE, bind, finished_quietly, keep
from .completion import Completion, Completions
from .display import INTERVAL
from .interrupt import Interrupted, Shield
from .options import UsageProblem, decode_escapes
from .run import Run
from .session import LoadedEngine

if TYPE_CHECKING:
    from yaie_engine import SamplingParams


@dataclass(frozen=True, slots=True)
class Job:
    """A prompt with its parameters, not sent yet."""

    item: Item
    params: SamplingParams


def batch(call: CellCall) -> Completions:
    """Send all prompts, wait for them, show and return their completions."""
    items, options = read_items(call), call.options
    engine = engine_of(call.given.get("engine"))
    jobs = [Job(item, _params(call, engine, item, number)) for number, item in enumerate(items, 1)]
    result = Completions()
    bind(call.shell, options, result)
    view = choose_batch_view(call.shell, options.quiet, options.background)
    with Shield() as shield:
        work = _Batch(engine, jobs, result, view, options.format)
        if options.background and not shield.fired:
            work.send_all()
            _follow(work)
            return finished_quietly(call.shell, result, alone=bool(call.body)) if options.quiet else result
        work.attend(shield)
    if work.interrupted:
        keep(call.shell, result)
        raise Interrupted(
            f"interrupted: {sum(one.finish_reason != 'cancelled' for one in result)} of {len(jobs)} finished"
        )
    _report(result, work.num_sent, len(jobs))
    return finished_quietly(call.shell, result, alone=bool(call.body)) if options.quiet else result


def read_items(call: CellCall) -> list[Item]:
    """The prompts, from where the line says.

    Raises:
        UsageProblem: there are none, or one is wrong.
    """
    given = call.given
    if sum(name in given for name in ("from", "jsonl", "sep")) > 1:
        raise UsageProblem("--from, --jsonl and --sep are three ways to give prompts; choose one")
    if "from" in given:
        if given["from"] not in call.shell.user_ns:
            raise UsageProblem(f"--from {given['from']}: that name is not defined in this notebook")
        if call.body.strip():
            print("%%batch: the cell body is not used with --from", file=sys.stderr)
        return fill(from_list(call.shell.user_ns[given["from"]], given["from"]), call.names)
    if given.get("jsonl"):
        return fill(split_json_lines(call.body), call.names)
    return fill(split_body(call.body, decode_escapes(given.get("sep", SEPARATOR))), call.names)


def _params(call: CellCall, engine: LoadedEngine, item: Item, number: int) -> SamplingParams:
    from yaie_engine import RequestError

    try:
        return call.params(engine, **item.params)
    except RequestError as error:
        if item.params:
            raise RequestError(f"prompt {number}: {error}") from None
        raise


class _Batch:
    """The requests of one batch, sent as the engine's queue has room."""

    def __init__(
        self, engine: LoadedEngine, jobs: Sequence[Job], result: Completions, view: BatchView, form: str
    ) -> None:
        self._engine, self._jobs, self._result = engine, jobs, result
        self._view, self._form = view, form
        self._runs: list[Run] = []
        self.interrupted = self._stopped = False

    @property
    def num_sent(self) -> int:
        """Prompts that were sent."""
        return len(self._runs)

    def attend(self, shield: Shield) -> None:
        """Send, wait, show. An interrupt cancels what runs and leaves the rest unsent."""
        try:
            self.open()
            for number in range(len(self._jobs)):
                self._send_more(number)
                if number >= len(self._runs):  # stopped
                    break
                while not self._runs[number].ended:
                    self.announce()
                    with shield.waiting():
                        self._runs[number].settle(INTERVAL)
                self._end(number)
        except KeyboardInterrupt:
            self.cancel()
        except BaseException:
            self.cancel()
            raise
        finally:
            self._view.finish(self._result)
        self.interrupted = self.interrupted or shield.fired

    def open(self) -> None:
        """Take a place in the cell that is running now."""
        self._view.open(len(self._jobs), self.stop)

    def stop(self) -> None:
        """End what runs and send no more. Any thread; returns at once."""
        self._stopped = True
        for run in list(self._runs):
            run.cancel()

    def send_all(self) -> None:
        """Send everything now."""
        try:
            while len(self._runs) < len(self._jobs):
                self._send(len(self._runs))
        except BaseException:
            self.cancel()
            raise

    def announce(self) -> None:
        """Show how far it is."""
        self._view.progress(self._runs, len(self._jobs))

    def follow(self) -> None:
        """On a thread: wait for what was sent and show it."""
        for number in range(len(self._runs)):
            while not self._runs[number].settle(INTERVAL):
                self.announce()
            self._end(number)
        self._view.finish(self._result)

    def cancel(self) -> None:
        """End what runs; the texts so far are kept."""
        self.interrupted = True
        for run in self._runs:
            run.cancel()
        for run in self._runs:
            run.settle_soon(GRACE / len(self._runs))

    def _send_more(self, number: int) -> None:
        """Send what the queue takes; at least the request `number` is sent afterwards."""
        from yaie_engine import QueueFullError

        try:
            while len(self._runs) < len(self._jobs) and not self._stopped:
                self._send(len(self._runs))
        except QueueFullError:
            if number >= len(self._runs):
                raise

    def _send(self, number: int) -> None:
        from yaie_engine import RequestError

        job = self._jobs[number]
        try:
            handle = self._engine.llm.submit(job.item.prompt, job.params)
        except RequestError as error:
            raise type(error)(f"prompt {number + 1}: {error}") from None
        run = Run(handle, self._engine.llm, job.item.prompt, job.params)
        self._runs.append(run)
        if self._stopped:  # since the last look
            run.cancel()
        self._result.extend(self._completions(run))

    def _end(self, number: int) -> None:
        self._runs[number].settle()
        self.announce()
        self._view.ended(self._completions(self._runs[number]))

    def _completions(self, run: Run) -> list[Completion]:
        return [Completion(run, index, self._form) for index in range(run.params.n)]


def _follow(work: _Batch) -> None:
    work.open()
    work.announce()  # here and not on the thread: some kernels put a thread's first display into the newest cell
    start("yaie-follow-batch", work.follow)


def _report(result: Sequence[Completion], sent: int, prompts: int) -> None:
    """What the reader of a list must know: that some failed, or that the batch was stopped before its end."""
    if sent < prompts:
        print(f"%%batch: stopped; {sent} of {prompts} prompts were sent", file=sys.stderr)
    failed = [one for one in result if one.error is not None]
    if failed:
        print(f"%%batch: {len(failed)} of {len(result)} failed, the first with: {failed[0].error}", file=sys.stderr)
