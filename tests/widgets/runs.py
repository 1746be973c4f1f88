"""Runs for tests of findings, made by hand: steps, a tape and ended requests, without an engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from yaie_engine.config import EngineConfig
from yaie_engine.record import RequestRecord
from yaie_engine.snapshot import (
    BatchEntry,
    BlockCounts,
    BlockEvents,
    Counters,
    EngineSnapshot,
    ModelInfo,
    QueueCounts,
    StepRecord,
    StepTimes,
    TreeEvents,
)
from yaie_engine.tape import Frame, NodeChange, TableChange, Tape, TapeStep, TreeChange
from yaie_widgets.insights import Finding, Insights, find_insights

from .snapshots import make_record

BLOCK = 4
HEAD = tuple(range(100, 112))
"""Three blocks that prompts have in common."""


def config(**settings: Any) -> EngineConfig:
    """Settings that contradict nothing."""
    return EngineConfig(**{"max_num_seqs": 4, "max_num_batched_tokens": 64, **settings})


def step(number: int, *batch: tuple[str, str, int], evicted: Sequence[int] = (), **more: Any) -> StepRecord:
    """A step record; its token counts follow from the batch."""
    tokens = {kind: sum(n for _, k, n in batch if k == kind) for kind in ("prefill", "decode")}
    entries = tuple(BatchEntry(name, kind, n) for name, kind, n in batch)  # type: ignore[arg-type]
    events = BlockEvents(evicted=tuple(evicted))
    times = StepTimes(1.0, 5.0, 2.0, 1.0)
    record = StepRecord(number, tokens["prefill"], tokens["decode"], entries, events, TreeEvents(), (), times)
    return replace(record, **more)


def node(
    name: int, tokens: Sequence[int], *, blocks: Sequence[int] = (), namespace: str = "", step: int = 1
) -> NodeChange:
    """A node directly below a root."""
    return NodeChange(name, -1, namespace, 0, 0, tuple(tokens), 0, tuple(blocks), step)


def taped(number: int, *, nodes: Sequence[NodeChange] = (), removed: Sequence[int] = (), **more: Any) -> TapeStep:
    """A step of the tape with what happened to the tree."""
    return TapeStep(number, float(number), tree=TreeChange(nodes=tuple(nodes), removed=tuple(removed)), **more)


def table(label: str, blocks: int, computed: int, first: int = 0) -> TableChange:
    """A block table, whole."""
    return TableChange(label, 0, tuple(range(first, first + blocks)), computed)


def asked(name: str, prompt: Sequence[int], first: int, last: int, cached: int = 0, **more: Any) -> RequestRecord:
    """An ended request with prompt ids."""
    return make_record(
        request_id=name,
        prompt=None,
        prompt_token_ids=tuple(prompt),
        first_step=first,
        last_step=last,
        num_cached_tokens=cached,
        **more,
    )


def snapshot(steps: Sequence[StepRecord] = (), *, total: int = 100, block: int = BLOCK, **model: Any) -> EngineSnapshot:
    """A snapshot with an idle pool."""
    info = replace(ModelInfo("tiny", "f", "float32", "cpu", "flat", "reference", "", 64), **model)
    number = steps[-1].step if steps else 0
    counts = BlockCounts(block, total, total, 0, 0)
    return EngineSnapshot("ready", number, info, counts, QueueCounts(), (), (), tuple(steps), Counters({}))


def insights(
    history: Sequence[RequestRecord] = (),
    steps: Sequence[StepRecord] = (),
    tape: Sequence[TapeStep] = (),
    *,
    base: Frame | None = None,
    settings: EngineConfig | None = None,
    seen: EngineSnapshot | None = None,
) -> Insights:
    """The findings of a run; without a tape, one in which nothing happened to the tree."""
    walked = tape or [taped(record.step) for record in steps]
    return find_insights(seen or snapshot(steps), Tape(base or Frame(), tuple(walked)), history, settings or config())


def by_id(found: Insights) -> dict[str, Finding]:
    """Findings by id, each of which stands there once."""
    names = [finding.id for finding in found.findings]
    assert len(set(names)) == len(names)
    return {finding.id: finding for finding in found.findings}


def figures(finding: Finding) -> dict[str, float]:
    """The evidence by name."""
    return {figure.name: figure.value for figure in finding.evidence}
