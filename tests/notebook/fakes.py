"""An engine without a model: real threads, queues and handles, invented tokens. Prefill, decode and load take the time
they are told, so that a test can interrupt each of them."""

from __future__ import annotations

import itertools
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from yaie_engine.channel import Channel
from yaie_engine.config import EngineConfig
from yaie_engine.errors import EngineDeadError, QueueFullError, RequestError
from yaie_engine.generation import Generation
from yaie_engine.increment import Increment, RequestFacts
from yaie_engine.outputs import CompletionOutput, RequestMetrics, RequestOutput
from yaie_engine.params import SamplingParams
from yaie_engine.progress import Progress
from yaie_engine.snapshot import BlockCounts, Counters, EngineSnapshot, ModelInfo, QueueCounts
from yaie_engine.tape import Frame, Tape

BLOCKS = 64


@dataclass
class Speed:
    """Seconds of the parts of a fake's work; changed by tests."""

    load: float = 0.0
    prefill: float = 0.0
    step: float = 0.001


SPEED = Speed()
BUILT: list[FakeLLM] = []


@dataclass
class _Work:
    id: str
    prompt: Any
    params: SamplingParams
    channel: Channel
    started: float = field(default_factory=time.monotonic)
    ids: list[list[int]] = field(default_factory=list)
    cancelled: bool = False


class FakeLLM:
    """The surface of LLM that the magics use. Text is `w0 w1 w2 ...`; token i is 100 + i; the prompt is UTF-8 bytes."""

    max_num_batched_tokens = 512

    def __init__(self, model: str = "tiny", config: EngineConfig | None = None, progress: Any = None) -> None:
        for part in range(20):
            progress and progress("reading weights", part / 20)
            time.sleep(SPEED.load / 20)
        self.config = config or EngineConfig(model=model)
        self.state = "ready"
        self.step = 0
        self._serial = itertools.count()
        self._work: list[_Work] = []
        self._ended: list[Any] = []
        self._lock = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="yaie-engine", daemon=True)
        self._thread.start()
        BUILT.append(self)

    # ---- requests

    def submit(self, prompt: Any, params: SamplingParams) -> Generation:
        if self.state != "ready":
            raise EngineDeadError(f"the engine is {self.state}; load the model again")
        if len(self.encode(prompt)) > 1000:
            raise RequestError("prompt of more than 1000 tokens")
        with self._lock:
            if len(self._work) >= self.config.max_waiting:
                raise QueueFullError("the queue is full")
            work = _Work(f"req-{next(self._serial)}", prompt, params, Channel())
            work.ids = [[] for _ in range(params.n)]
            self._work.append(work)
            self._lock.notify()
        return Generation(work.id, params.n, work.channel, self._cancel, lambda index: self._progress(work, index))

    def _progress(self, work: _Work, index: int) -> Progress:
        prompt, tokens = self.encode(work.prompt), len(work.ids[index])
        now = time.monotonic() - work.started
        text = work.prompt if isinstance(work.prompt, str) else None
        facts = RequestFacts(
            work.id, text, (), "decode" if tokens else "prefill", None, None, None, len(prompt), 0, tokens, 0.0, 0.0,
            None, None,
        )  # fmt: skip
        most = work.params.max_tokens or 16
        return Progress(facts, prompt, 0, len(prompt) // 2, len(prompt), most, 0, now, SPEED.step, 1, self.step)

    def detokenize(self, ids: list[int]) -> str:
        return bytes(ids).decode(errors="replace")

    def encode(self, prompt: Any) -> list[int]:
        return list(prompt.encode()) if isinstance(prompt, str) else list(prompt)

    def chat_ids(self, messages: list[dict[str, str]], add_generation_prompt: bool = True) -> list[int]:
        """1 opens a turn, 2 closes it, 3 is the newline after it, 10 to 12 are the roles."""
        roles = {"system": 10, "user": 11, "assistant": 12}
        turns = [[1, roles[m["role"]], *m["content"].encode(), 2, 3] for m in messages]
        return [token for turn in turns for token in turn] + ([1, 12] if add_generation_prompt else [])

    def _cancel(self, request_id: str) -> None:
        for work in self._work:
            work.cancelled = work.cancelled or work.id == request_id

    def cancel(self, request_id: str | None = None) -> int:
        wanted = [work.id for work in self._work if request_id in (None, work.id)]
        for each in wanted:
            self._cancel(each)
        return len(wanted)

    def running(self) -> list[str]:
        return [work.id for work in self._work]

    def history(self, n: int | None = None) -> list[Any]:
        return self._ended if n is None else self._ended[-n:]

    def snapshot(self) -> EngineSnapshot:
        held = len(self._work)
        return EngineSnapshot(
            "ready" if self.state == "ready" else "closed",
            self.step,
            ModelInfo("tiny", "f", "float32", "cpu", "flat", "reference", "one forward for all", 1000),
            BlockCounts(16, BLOCKS, BLOCKS - held, held, 0),
            QueueCounts(decode=held),
            (),
            (),
            (),
            Counters({}),
        )

    def tape(self) -> Tape:
        return Tape(Frame(), ())

    def steps_since(self, step: int) -> Increment:
        seen = self.snapshot()
        return Increment(seen.state, self.step, seen.model, 16, BLOCKS, Frame(), (), (), ())

    def close(self) -> None:
        with self._lock:
            self.state = "closed"
            self._lock.notify()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    # ---- engine thread

    def _run(self) -> None:
        while True:
            with self._lock:
                self._lock.wait_for(lambda: self._work or self.state != "ready")
                if self.state != "ready":
                    break
                work = list(self._work)
            self.step += 1
            time.sleep(SPEED.step)
            for each in work:
                self._advance(each)
        for each in list(self._work):
            self._end(each, "cancelled")

    def _advance(self, work: _Work) -> None:
        if work.cancelled:
            self._end(work, "cancelled")
        elif time.monotonic() - work.started >= SPEED.prefill:
            position = len(work.ids[0])
            for index, ids in enumerate(work.ids):
                ids.append(100 + position)
                work.channel.put(index, f"w{position} ")
            if position + 1 >= (work.params.max_tokens or 16):
                self._end(work, "length")

    def _end(self, work: _Work, reason: Any) -> None:
        outputs = tuple(
            CompletionOutput(i, "".join(f"w{t - 100} " for t in ids), tuple(ids), finish_reason=reason)
            for i, ids in enumerate(work.ids)
        )
        prompt = work.prompt if isinstance(work.prompt, str) else None
        output = RequestOutput(
            work.id, prompt, tuple(self.encode(work.prompt)), outputs, True, 0, metrics=RequestMetrics(total_s=0.5)
        )
        with self._lock:
            self._work.remove(work)
            self._ended.append(output)
        work.channel.end(output)


def build(config: EngineConfig, progress: Any) -> Any:
    """In place of `build_llm`."""
    return FakeLLM(config.model, config, progress)
