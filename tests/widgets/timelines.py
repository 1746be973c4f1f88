"""A short run for tests of the timeline, written down by hand: six steps, four requests, no engine.

a: prefill in two chunks, decode, stop. b: waits, takes 4 tokens from the cache, is preempted in step 4, goes on in
step 6. c: cancelled while it waits. d: queued after the newest step.
"""

from __future__ import annotations

from typing import Any

from yaie_engine.record import RequestRecord
from yaie_engine.snapshot import (
    BatchEntry,
    BlockCounts,
    BlockEvents,
    Counters,
    EngineSnapshot,
    ModelInfo,
    QueueCounts,
    RequestView,
    StepRecord,
    StepTimes,
    TreeEvents,
)
from yaie_engine.tape import Frame, TableChange, Tape, TapeStep

from .snapshots import make_record

MS = StepTimes(1.0, 5.0, 2.0, 2.0)


def record(number: int, *batch: tuple[str, str, int], **more: Any) -> StepRecord:
    """A step whose token counts follow from its batch."""
    tokens = {kind: sum(n for _, k, n in batch if k == kind) for kind in ("prefill", "decode")}
    entries = tuple(BatchEntry(name, kind, n) for name, kind, n in batch)  # type: ignore[arg-type]
    blocks = BlockEvents(evicted=tuple(range(more.get("evicted", 0))), allocated=(7,))
    preempted = more.get("preempted", ())
    return StepRecord(number, tokens["prefill"], tokens["decode"], entries, blocks, TreeEvents(), preempted, MS)


def steps(a: str = "a", b: str = "b") -> tuple[StepRecord, ...]:
    """The step records."""
    return (
        record(1, (a, "prefill", 8)),
        record(2, (a, "prefill", 4), (b, "prefill", 4)),
        record(3, (a, "decode", 1), (b, "decode", 1)),
        record(4, (a, "decode", 1), preempted=(b,)),
        record(5, (a, "decode", 1), evicted=2),
        record(6, (b, "prefill", 5), evicted=1),
    )


def tape(a: str = "a", b: str = "b", c: str = "c") -> Tape:
    """What changed in them; a step takes 10 ms, and there is nothing between two steps."""
    changes: list[dict[str, Any]] = [
        {"arrived": (a, b), "admitted": ((a, 0),), "tables": (TableChange(a, 0, (0, 1), 8),)},
        {"arrived": (c,), "admitted": ((b, 4),), "tables": (TableChange(b, 0, (0, 2), 8),)},
        {"left": ((c, "cancelled"),)},
        {"left": ((b, "waiting"),)},
        {"left": ((a, "finished"),)},
        {"admitted": ((b, 5),), "tables": (TableChange(b, 0, (3, 4), 10),)},
    ]
    return Tape(Frame(), tuple(TapeStep(n, 100 + n / 100, **change) for n, change in enumerate(changes, 1)))


def view(label: str, state: Any, output: int) -> RequestView:
    """A live request."""
    return RequestView(label, state, 8, 8, output, 4, (), 0, 0.1)


def history(a: str = "a", c: str = "c") -> list[RequestRecord]:
    """The ended requests."""
    ended = make_record(
        request_id=a, prompt_token_ids=tuple(range(12)), output_token_ids=((1, 2, 3, 4),), submitted_at=99.99
    )
    never = make_record(request_id=c, output_token_ids=((),), finish_reasons=("cancelled",), submitted_at=100.0)
    return [ended, never]


def snapshot(a: str = "a", b: str = "b", d: str = "d") -> EngineSnapshot:
    """The engine after step 6: b runs, d was queued since; two requests ended before the first recorded step."""
    return EngineSnapshot(
        state="ready",
        step=6,
        model=ModelInfo("tiny", "f00d", "float32", "cpu", "flat", "reference", "", 4096),
        blocks=BlockCounts(4, 10, 8, 2, 0),
        queue=QueueCounts(waiting=1, decode=1),
        requests=(view(b, "decode", 3), view(d, "waiting", 0)),
        tree=(),
        steps=steps(a, b),
        counters=Counters({"stop": 3, "cancelled": 1}),
    )
