"""The engine: one thread that drains its inbox and steps. `step()` is the whole system in a few lines."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, TypeVar

from .delivery import Delivery
from .device_errors import lost, out_of_memory, within_memory
from .door import Door
from .errors import DeviceMemoryError, EngineDeadError, InvariantError, RequestTimeout, YaieError
from .invariants import violations
from .outputs import RequestOutput
from .plan import ScheduledSequence, StepPlan
from .recorder import Recorder
from .request import Choice, Request
from .scheduler import Scheduler
from .sequence import Sequence, SequenceState
from .snapshot import EngineState, ModelInfo, StepTimes
from .step_runner import Runner, StepOutput
from .totals import Totals

if TYPE_CHECKING:
    from torch import Tensor

    from .sampler import SampledToken, Sampler

logger = logging.getLogger("yaie")
T = TypeVar("T")
MAX_STALLS = 100


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
        self._door = Door(scheduler.limits.max_num_seqs)
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
        self._post(partial(self._add, request), enters=True)

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

    @property
    def num_waiting(self) -> int:
        """Requests that have to wait before they run for the first time; those still in the inbox count."""
        return self._door.num_waiting

    def _post(self, action: Callable[[], None], enters: bool = False) -> None:
        with self._gate:
            if not self.alive:
                raise self._dead()
            self._door.entered += enters
            self._inbox.put(action)

    def _dead(self) -> EngineDeadError:
        if isinstance(self.failure, EngineDeadError):  # it says itself what to do
            return EngineDeadError(str(self.failure))
        why = f": {self.failure!r}" if self.failure else ""
        return EngineDeadError(f"the engine is {self.state}{why}; load the model again")

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
        self._door.free(len(self.scheduler.running))
        while True:
            try:
                action = self._inbox.get(block=wait)
            except Empty:
                return
            action()
            wait = False

    def _stop(self) -> None:
        self.state = "closed"

    def _shut_down(self) -> None:
        """Answer everybody who waits, whatever state the bookkeeping is in, and free the model."""
        with self._gate:
            self.state = "failed" if self.failure else "closed"
        dead = self.failure if isinstance(self.failure, EngineDeadError) else f"the engine failed: {self.failure!r}"
        error = EngineDeadError(str(dead)) if self.failure else None
        last: list[Callable[[], object]] = [partial(self._end, request, error) for request in self.requests.values()]
        last += [partial(self._drain, wait=False), self.runner.close]
        try:
            for action in last:
                self._try(action)
        finally:
            self._stopped.set()

    def _try(self, action: Callable[[], object]) -> None:
        """Something that must not keep the rest from being done."""
        try:
            action()
        except Exception:
            logger.exception("the engine stumbled and goes on")

    # ---- engine thread: one step

    def step(self) -> None:
        """Schedule, run, sample, publish."""
        clock = [time.perf_counter()]
        plan = None
        try:
            self._expire()
            plan = self.scheduler.schedule()
            self._note_start(plan)
            if not plan.batch:
                return
            clock.append(time.perf_counter())
            output = self.runner.run(plan, self._prompt_logit_ids(plan))
            clock.append(time.perf_counter())
            sample = partial(self._sample, plan, output)
            unscored, sampled = within_memory(sample, plan, output.logits.device)
            clock.append(time.perf_counter())
            self.scheduler.complete(plan, [None if token.error else token.token_id for token in sampled])
        except InvariantError:
            raise
        except Exception as error:
            if dead := lost(error):
                raise dead from error
            self._fail(plan, error)
            return
        self._publish_tokens(plan, sampled)
        for request, reason in unscored:
            self._end(request, reason)
        self._try(partial(self._record, plan, clock))

    def _fail(self, plan: StepPlan | None, error: Exception) -> None:
        """A failed step fails the requests that were in it and nothing else; one too large for memory is cut instead.

        When planning itself failed, these are the running ones, or else the first that waits: so every failure takes
        work away and none repeats for ever.
        """
        scheduler = self.scheduler
        logger.error("step %d failed: %r", scheduler.step, error)
        seqs = [entry.seq for entry in plan.batch] if plan else [*scheduler.running] or scheduler.waiting[:1]
        if plan and isinstance(error, DeviceMemoryError):
            seqs = scheduler.shrink(plan)
        guilty = dict.fromkeys(self._by_sequence[seq][0] for seq in seqs if seq in self._by_sequence)
        try:
            scheduler.abort(plan or StepPlan(scheduler.step, [_whole(seq) for seq in scheduler.running]))
            broken = violations(scheduler)
        except Exception as more:
            broken = [repr(more)]
        if broken:
            logger.error("the cache is emptied after a failed step: %s", "; ".join(broken))
            scheduler.rebuild()
        for request in guilty:
            self._end(request, _as_yaie(error, scheduler.step))

    def _prompt_logit_ids(self, plan: StepPlan) -> frozenset[int]:
        """Sequences whose prompt rows are wanted: the first choice, while its prompt is computed."""
        return frozenset(e.seq.seq_id for e in plan.batch if self._scores_prompt(e))

    def _scores_prompt(self, entry: ScheduledSequence) -> bool:
        request, choice = self._by_sequence[entry.seq]
        return (
            request.prompt_logprobs is not None and choice.seq.index == 0 and entry.start < entry.seq.num_prompt_tokens
        )

    def _note_start(self, plan: StepPlan) -> None:
        """What `explain` tells later: when the request ran, in which steps, and which blocks it allocated.

        A step may run nothing right after a preemption; if that goes on, the schedule is broken.
        """
        self._stalls = 0 if plan.batch else self._stalls + 1
        if self._stalls > MAX_STALLS:
            raise InvariantError([f"{self._stalls} steps in a row scheduled nothing", *violations(self.scheduler)])
        now = time.monotonic()
        for entry in plan.batch:
            request = self._by_sequence[entry.seq][0]
            if request.scheduled is None:
                request.scheduled = now
                self._door.left += 1
            request.first_step = request.first_step or plan.step
            request.last_step = plan.step
            request.num_prefill_steps += entry.kind == "prefill"
            request.num_decode_steps += entry.kind == "decode"
            for block in reversed(entry.seq.block_table):
                if self.scheduler.pool.owner[block] is not entry.seq:
                    break
                request.blocks_owned[block] = None
        self._door.look(len(self.scheduler.running))

    def _sample(self, plan: StepPlan, output: StepOutput) -> tuple[list[tuple[Request, YaieError]], list[SampledToken]]:
        """Prompts that could not be scored, and the tokens of the step."""
        unscored = self._publish_prompts(plan, output)
        rows = [self._by_sequence[entry.seq][1].row for entry in plan.sampling]
        return unscored, self.sampler.sample(output.logits, rows)

    def _publish_prompts(self, plan: StepPlan, output: StepOutput) -> list[tuple[Request, YaieError]]:
        """Turn prompt logits into log-probabilities; gives back the requests for which that failed, and why."""
        failed = []
        for entry in plan.batch:
            request = self._by_sequence[entry.seq][0]
            rows = output.prompt_logits.get(entry.seq.seq_id)
            if rows is not None:
                try:
                    self._score(request, entry, rows)
                except Exception as error:
                    if out_of_memory(error) or lost(error):
                        raise
                    failed.append((request, _as_yaie(error, plan.step)))
        return failed

    def _score(self, request: Request, entry: ScheduledSequence, rows: Tensor) -> None:
        """Row i of a chunk predicts the prompt token after it."""
        wanted, scores = request.params.prompt_logprobs, request.prompt_logprobs
        if wanted is None or scores is None:
            return
        targets = request.prompt_token_ids[entry.start + 1 : entry.stop + 1]
        found = self.sampler.prompt_logprobs(rows[: len(targets)], targets, wanted)
        for position, raw in enumerate(found, entry.start + 1):
            scores[position] = self.delivery.logprobs(raw)

    def _publish_tokens(self, plan: StepPlan, sampled: Iterable[SampledToken]) -> None:
        for entry, token in zip(plan.sampling, sampled, strict=True):
            if entry.seq not in self._by_sequence:
                continue  # its request failed earlier in this loop
            request, choice = self._by_sequence[entry.seq]
            try:
                ended = self._accept(request, choice, token)
            except Exception as error:  # a token that cannot be delivered fails its own request only
                self._end(request, _as_yaie(error, plan.step))
                if token.error is not None:
                    self._try(partial(self.scheduler.tree.discard, entry.seq.token_ids, entry.seq.namespace))
                continue
            if ended:
                self._leave(entry.seq, "finished")
                self._end_if_done(request)

    def _accept(self, request: Request, choice: Choice, token: SampledToken) -> bool:
        if token.error is not None:
            raise token.error
        self.totals.generated_tokens += 1
        return self.delivery.accept(request, choice, token)

    def _record(self, plan: StepPlan, clock: list[float]) -> None:
        clock.append(time.perf_counter())
        schedule, forward, sample, publish = ((b - a) * 1000 for a, b in itertools.pairwise(clock))
        times = StepTimes(schedule, forward, sample, publish)
        blocks = self.recorder.step(plan, self.scheduler.running, self.scheduler.changes, times)
        self.totals.step(plan, blocks)

    # ---- engine thread: requests

    def _add(self, request: Request) -> None:
        self.requests[request.request_id] = request
        self._door.seen += 1
        for choice in request.choices:
            self._by_sequence[choice.seq] = (request, choice)
            self.scheduler.add(choice.seq)
            self.recorder.arrived(choice.seq)
        if not self.alive:
            self._end(request, self._dead())

    def _cancel(self, request_id: str) -> None:
        if request_id in self.requests:
            self._end(self.requests[request_id], None)

    def _expire(self) -> None:
        now = time.monotonic()
        for request in [r for r in self.requests.values() if r.deadline is not None and r.deadline <= now]:
            self._end(request, RequestTimeout(f"request {request.request_id} ran into its timeout"), "timeout")

    def _end(self, request: Request, error: YaieError | None, stop_reason: str | None = None) -> None:
        """End every live choice: cancelled, or failed with `error`. The caller hears of it whatever goes wrong here."""
        if error is not None:
            request.fail(error)
        for choice in request.live_choices:
            self._leave(choice.seq, "cancelled" if error is None else "failed")
            choice.interrupt(error is not None, stop_reason)
            self._try(partial(self.delivery.flush, request, choice))
        self._end_if_done(request)

    def _leave(self, seq: Sequence, state: SequenceState) -> None:
        """A sequence ends. If its blocks cannot be given back in order, the cache is emptied."""
        self._by_sequence.pop(seq, None)
        self.recorder.left(seq, state)
        try:
            self.scheduler.finish(seq, state)
        except Exception:
            logger.exception("the cache is emptied: %s could not give back its blocks", seq.label)
            self.scheduler.rebuild(without=seq)
            seq.state = state

    def _end_if_done(self, request: Request) -> None:
        """The one terminal event of a request, once its last choice has ended."""
        if request.live_choices or self.requests.pop(request.request_id, None) is None:
            return
        self._door.left += request.scheduled is None
        try:
            output = request.output()
        except Exception as error:
            output = request.bare_output(_as_yaie(error, self.scheduler.step))
        try:
            self._try(partial(self._count, request, output))
        finally:
            request.channel.end(output)

    def _count(self, request: Request, output: RequestOutput) -> None:
        self.totals.request(output)
        self.recorder.request(request.record())

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


def _whole(seq: Sequence) -> ScheduledSequence:
    return ScheduledSequence(seq, seq.computed, 0, seq.computed, "prefill", samples=False)
