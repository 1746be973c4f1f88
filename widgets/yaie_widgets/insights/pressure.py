"""Too little memory: requests that lost their blocks, a pool too small for what runs, prefixes that did not stay."""

from __future__ import annotations

from collections.abc import Iterator

from yaie_widgets.figures import count, counted

from .finding import Figure, Finding, Severity, unavailable
from .run import Run, percent, worst_first
from .walk import Report

# Computed again after preemptions, as a share of all computed tokens: from 10 % on it is felt in the output rate.
HIGH_SHARE = 10.0
# The pool is too small for the running set when a tenth of the steps leaves somebody waiting for blocks alone.
SHORT_STEPS = 10.0


def preemption_findings(report: Report) -> Iterator[Finding]:
    """Requests that gave up their blocks for others, and what that cost."""
    run = report.run
    labels = [label for step in run.snapshot.steps for label in step.preempted]
    if not labels:
        return
    again = report.walk.computed_again
    lost = sum(again.values())
    computed = sum(step.num_prefill_tokens + step.num_decode_tokens for step in run.snapshot.steps)
    share = percent(lost, computed) if computed else 0.0
    severity: Severity = "high" if share >= HIGH_SHARE else "medium"
    times = {label: float(again.get(label, 0)) for label in labels}
    yield Finding(
        id="preemptions",
        severity=severity,
        title="Running requests lost their blocks",
        statement=f"{counted(len(times), 'request')} gave up blocks {counted(len(labels), 'time')} so that others "
        f"could go on{_kept(run)}; {counted(lost, 'token')} had to be computed again when they came back.",
        span=run.window,
        evidence=(
            Figure("preemptions", len(labels)),
            Figure("computed again", lost, "tokens"),
            Figure("share of work", share, "%"),
            Figure("pool", run.snapshot.blocks.total, "blocks"),
        ),
        request_ids=worst_first(times),
        recommendation="Raise --num-blocks, or lower --max-num-seqs so that fewer requests share the pool.",
    )


def _kept(run: Run) -> str:
    """How often host blocks took what was given up."""
    swapped = sum(state == "swapped" for change in run.tape.steps for _, state in change.left)
    return f", {counted(swapped, 'time')} to host blocks" if swapped else ""


def eviction_findings(report: Report) -> Iterator[Finding]:
    """How many cached blocks went for room; whether they were missed is told by the finding on evicted prefixes."""
    run = report.run
    blocks = sum(len(step.blocks.evicted) for step in run.snapshot.steps)
    if not blocks:
        return
    steps = sum(1 for step in run.snapshot.steps if step.blocks.evicted)
    yield Finding(
        id="evictions",
        severity="info",
        title="Cached blocks were evicted for room",
        statement=f"{counted(blocks, 'cached block')} went in {counted(steps, 'step')}. Eviction costs something only "
        "when the prefix is asked for again.",
        span=run.window,
        evidence=(
            Figure("evicted", blocks, "blocks"),
            Figure("pool", run.snapshot.blocks.total, "blocks"),
        ),
    )


def pool_findings(report: Report) -> Iterator[Finding]:
    """Whether requests waited for blocks while there was room in the batch and in the budget."""
    run = report.run
    total, recorded = run.snapshot.blocks.total, len(run.tape.steps)
    if not total:
        missing = f"the pool has no blocks while the engine is {run.snapshot.state}"
        yield unavailable("pool", "Whether the pool is large enough", missing, run.window)
        return
    waited = report.walk.waited
    if not recorded or not waited.blocks or percent(waited.blocks, recorded) < SHORT_STEPS:
        return
    yield Finding(
        id="pool",
        severity="medium",
        title="Requests waited for blocks, not for compute",
        statement=f"In {count(waited.blocks)} of {counted(recorded, 'step')} a request stayed in the queue while the "
        "batch and the token budget had room and running requests held nine tenths of the pool or more.",
        span=run.window,
        evidence=(
            Figure("short of blocks", waited.blocks, "steps"),
            Figure("most held", report.walk.peak_held, "blocks"),
            Figure("pool", total, "blocks"),
        ),
        confidence="inferred",
        recommendation="Raise --num-blocks, or ask for fewer output tokens.",
    )
