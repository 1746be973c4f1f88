"""The engine: one thread that drains its inbox and steps. `step()` is the whole system in a few lines.

What waits until the device is busy, and why that changes no result, is told in `overlap`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from .breach import breach
from .delivery import Delivery
from .device_errors import lost, within_memory
from .door import Door
from .engine_check import all_violations
from .engine_thread import EngineThread
from .errors import SURVIVED, EngineDeadError, InvariantError, RequestTimeout, YaieError, step_error
from .failed_step import fail_step
from .fault_points import fault_point
from .interlude import record_interlude
from .invariants import suspicions, violations
from .look_ahead import decodes_ahead, holds, look_ahead
from .outputs import RequestOutput
from .overlap import Finished, Spent, StepClock
from .plan import Guess, ScheduledSequence, StepPlan
from .recorder import Recorder
from .rejection import reject
from .renewal import fresh
from .request import Choice, Request
from .scheduler import Scheduler
from .scoring import PromptScores
from .sequence import EndState, Sequence
from .snapshot import ModelInfo
from .step_runner import Runner
from .totals import Totals

if TYPE_CHECKING:
    from torch import Tensor

    from .sampler import SampledToken, Sampler

    Sampled = tuple[list[tuple[Request, YaieError]], list[SampledToken]]

logger = logging.getLogger("yaie")
MAX_STALLS = 100


class LLMEngine(EngineThread):
    """Owns scheduler, runner and requests. What is private, and `step`, belongs to the engine thread."""

    def __init__(
        self,
        scheduler: Scheduler,
        runner: Runner,
        sampler: Sampler,
        delivery: Delivery,
        info: ModelInfo,
        recorder_steps: int = 4096,
        overlap: bool = False,
        reason: Callable[[], str] | None = None,
    ) -> None:
        """`overlap`: the device of `runner` works by itself, and the host has something else to do meanwhile.

        `reason` gives what `info` says of it as it is by now."""
        super().__init__()
        self.scheduler, self.runner, self.sampler, self.delivery = scheduler, runner, sampler, delivery
        self.info, self.reason = info, reason
        self.recorder = Recorder(recorder_steps)
        self.totals = Totals()
        self.requests: dict[str, Request] = {}
        self.overlap = overlap
        self._by_sequence: dict[Sequence, tuple[Request, Choice]] = {}
        self._scores = PromptScores(sampler, delivery, self._by_sequence)
        self._clock, self._spent = StepClock(), Spent()
        self._finished: Finished | None = None
        self._guess: Guess | None = None
        self._stalls = 0
        self._door = Door(scheduler.limits.max_num_seqs)
        self._thread.start()

    # ---- any thread

    def submit(self, request: Request) -> None:
        """Queue a validated request.

        Raises:
            EngineDeadError: the engine is closed or failed (AsleepError: it sleeps).
        """
        self._post(partial(self._add, request), self._door.enter)

    def cancel(self, request_id: str) -> None:
        """End a request at the next step boundary; unknown ids are ignored. Safe in finalisers."""
        self._inbox.put(partial(self._cancel, request_id))

    @property
    def num_waiting(self) -> int:
        """Requests that have to wait before they run for the first time; those still in the inbox count."""
        return self._door.num_waiting

    # ---- engine thread: the loop

    @property
    def idle(self) -> bool:
        return self.scheduler.idle

    def _boundary(self) -> None:
        self._door.free(len(self.scheduler.running))

    def _last_words(self, error: EngineDeadError | None) -> list[Callable[[], object]]:
        """Answer everybody who waits, whatever state the bookkeeping is in, and free the model."""
        ends = [partial(self._end, request, error) for request in self.requests.values()]
        return [self._catch_up, *ends, self._answer_rest, self.runner.close]

    # ---- engine thread: one step

    def step(self) -> None:
        """Schedule, run, sample, publish."""
        plan, spent = None, self._begin()
        try:
            self._expire()
            if found := suspicions(self.scheduler):
                raise InvariantError([*found, *violations(self.scheduler)])
            guess = self._true_guess()
            plan = guess.plan if guess else self._schedule(spent)
            if guess is None:
                self._note_start(plan)
            if not plan.batch:
                self._catch_up()
                return
            read = self._launch(plan, guess, spent)
            self._meanwhile(plan)
            unscored, sampled = read()
            self._clock.charge(spent, "sample")
            reject(self, unscored)
            live = self._complete(plan, sampled)
        except InvariantError as error:
            if not self.serves:  # it is the second one: the first was reported, and what runs cannot be finished
                raise self._dead() from error
            breach(self, error.violations)
            return
        except SURVIVED as error:
            if dead := lost(error):
                raise dead from error
            fail_step(self, plan, error)
            return
        self._publish(Finished(plan, spent), live)

    def _begin(self) -> Spent:
        """The times of the step that begins; those of the next one, which starts with its guess, are made anew."""
        self._clock.skip()
        spent, self._spent = self._spent, Spent()
        return spent

    def _true_guess(self) -> Guess | None:
        """What was guessed, if it holds. Tokens of the step before do not wait for a launch that takes its time."""
        guess, self._guess = self._guess, None
        if not self.runner.replays(decodes_ahead(self.scheduler)):
            self._deliver_late()
        return guess if guess is not None and holds(self.scheduler, guess) else None

    def _schedule(self, spent: Spent) -> StepPlan:
        self._clock.charge(spent, "schedule")
        self._record()  # first, since scheduling changes what it tells
        fault_point("plan")
        return fresh(self.scheduler, self.runner).schedule()

    def _launch(self, plan: StepPlan, guess: Guess | None, spent: Spent) -> Callable[[], Sampled]:
        """Queue the step on the device; gives what waits for its results."""
        self._clock.charge(spent, "schedule")
        try:
            output = self.runner.run(plan, self._scores.wanted(plan))
            self._clock.charge(spent, "forward")
            device = output.logits.device
            tokens = within_memory(partial(self._sample, plan, output.logits), plan, device)
            self._clock.charge(spent, "sample")
        finally:
            if guess is not None:
                self._record()
                self.scheduler.take(guess)
        if guess is not None:
            self._note_start(plan)
            self._clock.charge(spent, "schedule")
        return partial(within_memory, lambda: (self._scores.score(plan, output), tokens()), plan, device)

    def _sample(self, plan: StepPlan, logits: Tensor) -> Callable[[], list[SampledToken]]:
        fault_point("sample", plan, logits)
        return self.sampler.start(logits, [self._by_sequence[entry.seq][1].row for entry in plan.sampling])

    def _meanwhile(self, plan: StepPlan) -> None:
        """While `plan` runs: deliver the rest of the step before, guess the one after."""
        self._deliver_late()
        if self.overlap:
            self._try(partial(self._look_ahead, plan))
            self._clock.charge(self._spent, "schedule")

    def _look_ahead(self, plan: StepPlan) -> None:
        guess = look_ahead(self.scheduler, plan)
        if guess is not None:
            self.runner.prepare(guess.plan, self._scores.wanted(guess.plan))
            self._guess = guess

    def _complete(self, plan: StepPlan, sampled: list[SampledToken]) -> list[tuple[ScheduledSequence, SampledToken]]:
        """The tokens of those that did not end while the step ran."""
        live = [each for each in zip(plan.sampling, sampled, strict=True) if each[0].seq.state == "running"]
        self.scheduler.complete(plan, [None if token.error else token.token_id for token in sampled])
        return live

    def _note_start(self, plan: StepPlan) -> None:
        """What `explain` tells later: when the request ran, in which steps, and which blocks it allocated.

        A step may run nothing right after a preemption; if that goes on, the schedule is broken.
        """
        fault_point("start", plan)
        self._stalls = 0 if plan.batch or self.idle else self._stalls + 1
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

    def _publish(self, done: Finished, live: list[tuple[ScheduledSequence, SampledToken]]) -> None:
        """Deliver the tokens; with overlap those that cannot end their sequences are left for later."""
        self._finished = done
        for entry, token in live:
            if entry.seq in self._by_sequence:  # else its request failed earlier in this loop
                self._deliver(entry.seq, token, done, fresh=True)
        self._clock.charge(done.spent, "publish")
        if not self.overlap or self.idle:
            self._catch_up()

    def _catch_up(self) -> None:
        """Do what was left for later and drop the guess: somebody is about to look, or to change something."""
        self._guess = None
        self._clock.skip()
        self._deliver_late()
        self._record()
        self._try(partial(record_interlude, self))

    def _deliver_late(self) -> None:
        done = self._finished
        if done is None:
            return
        while done.tokens:
            seq = next(iter(done.tokens))
            self._deliver(seq, done.tokens.pop(seq), done)
        self._clock.charge(done.spent, "publish")
        self._settle(done)

    def _settle(self, done: Finished) -> None:
        """Once a step is recorded and its tokens are delivered, its times are known and nothing of it is left."""
        if done.recorded and not done.tokens:
            self._try(partial(self.recorder.timed, done.plan.step, done.spent.times))
            self._finished = None

    def _deliver(self, seq: Sequence, token: SampledToken, done: Finished, fresh: bool = False) -> None:
        """Pass on a token of `done`, or keep it for later where it is `fresh` and can wait.

        One that cannot be delivered fails its own request only: no error leaves here, whoever called.
        """
        request, choice = self._by_sequence[seq]
        try:
            fault_point("deliver", request, choice)
            if fresh and self._waits(request, choice, token):
                done.tokens[seq] = token
                return
            ended = self._accept(request, choice, token)
        except SURVIVED as error:
            self._end(request, step_error(error, done.plan.step))
            if token.error is not None:
                self._try(partial(self.scheduler.tree.discard, seq.token_ids, seq.namespace))
                self._try(partial(self.scheduler.host.discard, seq.token_ids, seq.namespace))
            return
        if ended:
            self._leave(seq, "finished")
            self._end_if_done(request)

    def _waits(self, request: Request, choice: Choice, token: SampledToken) -> bool:
        """Take a token into the choice's sampling; whether it may be delivered while the next step runs."""
        if token.error is None:
            choice.row.push(token.token_id)
        return self.overlap and not self.delivery.decides(request, choice, token)

    def _accept(self, request: Request, choice: Choice, token: SampledToken) -> bool:
        if token.error is not None:
            raise token.error
        self.totals.generated_tokens += 1
        return self.delivery.accept(request, choice, token)

    def _record(self) -> None:
        """Write the record of the step before. Nothing of the next one may have changed blocks or tree."""
        done = self._finished
        if done is not None and not done.recorded:
            done.recorded = True
            self._try(partial(self._write_record, done))
            self._clock.skip()
            self._settle(done)

    def _write_record(self, done: Finished) -> None:
        scheduler = self.scheduler
        held = scheduler.host.pool.num_held
        blocks = self.recorder.step(done.plan, scheduler.running, scheduler.changes, held)
        self.totals.step(done.plan, blocks)

    # ---- engine thread: requests

    def _add(self, request: Request) -> None:
        self.requests[request.request_id] = request
        self._door.seen += 1
        for choice in request.choices:
            self._by_sequence[choice.seq] = (request, choice)
            self.scheduler.add(choice.seq)
            self.recorder.arrived(choice.seq)
        if not self.serves:
            self._end(request, None if self.state == "asleep" else self._dead())

    def _cancel(self, request_id: str) -> None:
        if request_id in self.requests:
            self._end(self.requests[request_id], None)

    def _expire(self) -> None:
        now = time.monotonic()
        late = [r for r in self.requests.values() if r.deadline is not None and r.deadline <= now]
        if late:
            self._catch_up()
        for request in late:
            self._end(request, RequestTimeout(f"request {request.request_id} ran into its timeout"), "timeout")

    def _end(self, request: Request, error: YaieError | None, stop_reason: str | None = None) -> None:
        """End every live choice: cancelled, or failed with `error`. The caller hears of it whatever goes wrong here.

        Late tokens come first. One that cannot be delivered ends the request, by this method again.
        """
        if (done := self._finished) is not None:
            for seq, token in [(c.seq, done.tokens.pop(c.seq, None)) for c in request.live_choices]:
                if token is not None and seq in self._by_sequence:
                    self._deliver(seq, token, done)
        if error is not None:
            request.fail(error)
        for choice in request.live_choices:
            self._leave(choice.seq, "cancelled" if error is None else "failed")
            choice.interrupt(error is not None, stop_reason)
            self._try(partial(self.delivery.flush, request, choice))
        self._end_if_done(request)

    def _leave(self, seq: Sequence, state: EndState) -> None:
        """A sequence ends. If its blocks cannot be given back in order, the cache is emptied."""
        self._by_sequence.pop(seq, None)
        self._try(partial(self.recorder.left, seq, state))
        try:
            self.scheduler.finish(seq, state)
        except SURVIVED:
            logger.exception("the cache is emptied: %s could not give back its blocks", seq.label)
            self.scheduler.rebuild(without=seq)
            seq.state = state

    def _end_if_done(self, request: Request) -> None:
        """The one terminal event of a request, once its last choice has ended."""
        if request.live_choices or self.requests.pop(request.request_id, None) is None:
            return
        self._door.left += request.scheduled is None
        try:
            fault_point("result", request)
            output = request.output()
        except SURVIVED as error:
            output = request.bare_output(step_error(error, self.scheduler.step))
        except BaseException as error:  # it ends the engine, in whose books this caller is not found any more
            request.channel.end(request.bare_output(EngineDeadError(f"the engine failed: {error!r}")))
            raise
        try:
            self._try(partial(self._count, request, output))
        finally:
            request.channel.end(output)

    def _count(self, request: Request, output: RequestOutput) -> None:
        fault_point("record", "request")
        self.totals.request(output)
        self.recorder.request(request.record())

    # ---- engine thread, through `call`

    def check(self) -> None:
        """Raise InvariantError when the bookkeeping contradicts itself; then nothing new is served."""
        self._catch_up()
        if found := all_violations(self):
            raise InvariantError(found, str(breach(self, found)))
