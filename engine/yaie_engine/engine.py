"""The engine: one thread that drains its inbox and steps. `step()` is the whole system in a few lines."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Protocol, TypeVar

from .delivery import Delivery
from .errors import EngineDeadError, InvariantError, RequestTimeout, YaieError
from .invariants import violations
from .plan import ScheduledSequence, StepPlan
from .recorder import Recorder
from .request import Choice, Request
from .scheduler import Scheduler
from .sequence import Sequence
from .snapshot import EngineState, ModelInfo, StepTimes

if TYPE_CHECKING:
    from torch import Tensor

    from .sampler import SampledToken, Sampler

logger = logging.getLogger("yaie")
T = TypeVar("T")
MAX_STALLS = 100


class StepOutput(Protocol):
    """`logits` float32 [len(plan.sampling), vocab]; `prompt_logits` rows of whole chunks by sequence id."""

    @property
    def logits(self) -> Tensor: ...
    @property
    def prompt_logits(self) -> dict[int, Tensor]: ...


class Runner(Protocol):
    """Carries out a plan: copies, then one forward."""

    def run(self, plan: StepPlan, prompt_logit_ids: frozenset[int] = ...) -> StepOutput: ...
    def close(self) -> None: ...


@dataclass(slots=True)
class Totals:
    """Counters since the start."""

    requests: dict[str, int] = field(default_factory=dict)
    prompt_tokens: int = 0
    cached_tokens: int = 0
    computed_tokens: int = 0
    generated_tokens: int = 0
    evictions: int = 0
    copies: int = 0


class LLMEngine:
    """Owns scheduler, runner and requests. What is private, and `step`, belongs to the engine thread."""

    def __init__(
        self,
        scheduler: Scheduler,
        runner: Runner,
        sampler: Sampler,
        delivery: Delivery,
        info: ModelInfo,
        recorder_steps: int = 4096,
    ) -> None:
        self.scheduler, self.runner, self.sampler, self.delivery = scheduler, runner, sampler, delivery
        self.info = info
        self.recorder = Recorder(recorder_steps)
        self.totals = Totals()
        self.state: EngineState = "ready"
        self.failure: BaseException | None = None
        self.requests: dict[str, Request] = {}
        self._by_sequence: dict[Sequence, tuple[Request, Choice]] = {}
        self._stalls = 0
        self._inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._gate = threading.Lock()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="yaie-engine", daemon=True)
        self._thread.start()

    # ---- any thread

    def submit(self, request: Request) -> None:
        """Queue a validated request.

        Raises:
            EngineDeadError: the engine is closed or failed.
        """
        self._post(partial(self._add, request))

    def cancel(self, request_id: str) -> None:
        """End a request at the next step boundary; unknown ids are ignored. Safe in finalisers."""
        self._inbox.put(partial(self._cancel, request_id))

    def call(self, function: Callable[[], T]) -> T:
        """Run `function` on the engine thread between two steps and return what it returns."""
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(function())
            except Exception as error:
                future.set_exception(error)

        self._post(run)
        return future.result()

    def close(self) -> None:
        """Cancel what runs, end the thread and free the model. Safe to call twice."""
        self._inbox.put(self._stop)
        if threading.current_thread() is not self._thread:
            self._stopped.wait()

    @property
    def alive(self) -> bool:
        return self.state in ("ready", "draining")

    def _post(self, action: Callable[[], None]) -> None:
        with self._gate:
            if not self.alive:
                why = f": {self.failure}" if self.failure else ""
                raise EngineDeadError(f"the engine is {self.state}{why}; load the model again")
            self._inbox.put(action)

    # ---- engine thread: the loop

    def _run(self) -> None:
        try:
            while self.alive:
                if self.scheduler.idle:
                    self._drain(wait=True)
                else:
                    self.step()
                    self._drain(wait=False)
        except BaseException as error:
            logger.exception("the engine failed")
            self.failure = error
        finally:
            self._shut_down()

    def _drain(self, wait: bool) -> None:
        """Carry out what is in the inbox; waits for the first item when there is nothing else to do."""
        try:
            while True:
                self._inbox.get(block=wait)()
                wait = False
        except Empty:
            return

    def _stop(self) -> None:
        self.state = "closed"

    def _shut_down(self) -> None:
        with self._gate:
            self.state = "failed" if self.failure else "closed"
        error = EngineDeadError(f"the engine failed: {self.failure!r}") if self.failure else None
        for request in list(self.requests.values()):
            self._end(request, error)
        self._drain(wait=False)
        try:
            self.runner.close()
        finally:
            self._stopped.set()

    # ---- engine thread: one step

    def step(self) -> None:
        """Schedule, run, sample, publish."""
        clock = [time.perf_counter()]
        self._expire()
        plan = self.scheduler.schedule()
        if not plan.batch:
            self._note_stall(plan)
            return
        self._stalls = 0
        try:
            self._note_start(plan)
            clock.append(time.perf_counter())
            output = self.runner.run(plan, self._prompt_logit_ids(plan))
            clock.append(time.perf_counter())
            self._publish_prompts(plan, output)
            sampled = self.sampler.sample(output.logits, [self._by_sequence[e.seq][1].row for e in plan.sampling])
            clock.append(time.perf_counter())
        except Exception as error:
            self._fail(plan, error)
            return
        self.scheduler.complete(plan, [None if token.error else token.token_id for token in sampled])
        self._publish_tokens(plan, sampled)
        self._record(plan, clock)

    def _note_stall(self, plan: StepPlan) -> None:
        """A step may run nothing right after a preemption; if that goes on, the schedule is broken."""
        self._stalls = 0 if plan.preempted else self._stalls + 1
        if self._stalls > MAX_STALLS:
            raise InvariantError([f"{self._stalls} steps in a row scheduled nothing", *violations(self.scheduler)])

    def _fail(self, plan: StepPlan, error: Exception) -> None:
        """A failed step fails the requests that were in it and nothing else."""
        logger.error("step %d failed: %r", plan.step, error)
        self.scheduler.abort(plan)
        for request in {
            self._by_sequence[entry.seq][0].request_id: self._by_sequence[entry.seq][0] for entry in plan.batch
        }.values():
            self._end(request, _as_yaie(error, plan.step))

    def _prompt_logit_ids(self, plan: StepPlan) -> frozenset[int]:
        """Sequences whose prompt rows are wanted: the first choice, while its prompt is computed."""
        return frozenset(e.seq.seq_id for e in plan.batch if self._scores_prompt(e))

    def _scores_prompt(self, entry: ScheduledSequence) -> bool:
        request, choice = self._by_sequence[entry.seq]
        return (
            request.prompt_logprobs is not None and choice.seq.index == 0 and entry.start < entry.seq.num_prompt_tokens
        )

    def _note_start(self, plan: StepPlan) -> None:
        """What `explain` tells later: when the request ran, in which steps, and which blocks it allocated."""
        now = time.monotonic()
        for entry in plan.batch:
            request = self._by_sequence[entry.seq][0]
            request.scheduled = request.scheduled or now
            request.first_step = request.first_step or plan.step
            request.last_step = plan.step
            request.num_prefill_steps += entry.kind == "prefill"
            request.num_decode_steps += entry.kind == "decode"
            for block in reversed(entry.seq.block_table):
                if self.scheduler.pool.owner[block] is not entry.seq:
                    break
                request.blocks_owned[block] = None

    def _publish_prompts(self, plan: StepPlan, output: StepOutput) -> None:
        """Turn prompt logits into log-probabilities; row i of a chunk predicts the prompt token after it."""
        for entry in plan.batch:
            request, _ = self._by_sequence[entry.seq]
            rows = output.prompt_logits.get(entry.seq.seq_id)
            if rows is None or request.prompt_logprobs is None or request.params.prompt_logprobs is None:
                continue
            targets = request.prompt_token_ids[entry.start + 1 : entry.stop + 1]
            found = self.sampler.prompt_logprobs(rows[: len(targets)], targets, request.params.prompt_logprobs)
            for position, raw in enumerate(found, entry.start + 1):
                request.prompt_logprobs[position] = self.delivery.logprobs(raw)

    def _publish_tokens(self, plan: StepPlan, sampled: Iterable[SampledToken]) -> None:
        for entry, token in zip(plan.sampling, sampled, strict=True):
            if entry.seq not in self._by_sequence:
                continue  # its request failed earlier in this loop
            request, choice = self._by_sequence[entry.seq]
            try:
                ended = self._accept(request, choice, token)
            except Exception as error:  # a token that cannot be delivered fails its own request only
                self._end(request, _as_yaie(error, plan.step))
                continue
            if ended:
                self.scheduler.finish(entry.seq, "finished")
                del self._by_sequence[entry.seq]
                self._end_if_done(request)

    def _accept(self, request: Request, choice: Choice, token: SampledToken) -> bool:
        if token.error is not None:
            raise token.error
        self.totals.generated_tokens += 1
        return self.delivery.accept(request, choice, token)

    def _record(self, plan: StepPlan, clock: list[float]) -> None:
        clock.append(time.perf_counter())
        schedule, forward, sample, publish = ((b - a) * 1000 for a, b in itertools.pairwise(clock))
        events = self.scheduler.changes.take()
        self.totals.evictions += len(events[0].evicted)
        self.totals.copies += len(events[0].copied)
        self.totals.computed_tokens += plan.num_tokens
        self.recorder.step(plan, events, StepTimes(schedule, forward, sample, publish))

    # ---- engine thread: requests

    def _add(self, request: Request) -> None:
        self.requests[request.request_id] = request
        for choice in request.choices:
            self._by_sequence[choice.seq] = (request, choice)
        if not self.alive:
            self._end(request, EngineDeadError(f"the engine is {self.state}"))
            return
        for choice in request.choices:
            self.scheduler.add(choice.seq)

    def _cancel(self, request_id: str) -> None:
        if request_id in self.requests:
            self._end(self.requests[request_id], None)

    def _expire(self) -> None:
        now = time.monotonic()
        for request in [r for r in self.requests.values() if r.deadline is not None and r.deadline <= now]:
            self._end(request, RequestTimeout(f"request {request.request_id} ran into its timeout"), "timeout")

    def _end(self, request: Request, error: YaieError | None, stop_reason: str | None = None) -> None:
        """End every live choice: cancelled, or failed with `error`."""
        for choice in request.live_choices:
            self.scheduler.finish(choice.seq, "cancelled" if error is None else "failed")
            self._by_sequence.pop(choice.seq, None)
            self.delivery.interrupt(request, choice, error, stop_reason)
        self._end_if_done(request)

    def _end_if_done(self, request: Request) -> None:
        if request.live_choices or self.requests.pop(request.request_id, None) is None:
            return
        output = request.output()
        outcome = "error" if request.error else output.outputs[0].finish_reason or "error"
        self.totals.requests[outcome] = self.totals.requests.get(outcome, 0) + 1
        self.totals.prompt_tokens += len(request.prompt_token_ids)
        self.totals.cached_tokens += request.num_cached_tokens
        self.recorder.request(request.record())
        request.channel.end(output)

    # ---- engine thread, through `call`

    def check(self) -> None:
        """Raise InvariantError when the bookkeeping contradicts itself."""
        found = violations(self.scheduler)
        if set(self._by_sequence) != {*self.scheduler.waiting, *self.scheduler.running}:
            found.append("the engine and the scheduler know different sequences")
        if found:
            raise InvariantError(found)


def _as_yaie(error: Exception, step: int) -> YaieError:
    return error if isinstance(error, YaieError) else YaieError(f"step {step} failed: {error!r}")
