"""Where the time of requests went: queue, prefill or decode, and what the first token waited for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from yaie_widgets.figures import counted, seconds

from .finding import Figure, Finding, Severity, unavailable
from .run import Run, percent, worst_first
from .walk import Report, Waited

if TYPE_CHECKING:
    from yaie_engine.record import RequestRecord
    from yaie_engine.snapshot import StepRecord

# A phase binds a run when it takes at least half of the requests' time: halving it then saves more than all the rest.
BOUND_SHARE = 50.0
# A worst first token is called out when it takes five times the median and a second: a person notices both.
WORST_TIMES, WORST_S = 5.0, 1.0
# Waiting gives nobody anything; prefill can often be shared; decoding is what an engine is for.
_BOUND: dict[str, Severity] = {"queue": "high", "prefill": "medium", "decode": "info"}
SHOWN_IDS = 5
_PHASES = {"queue": "its place in a step", "prefill": "its prompt", "first_decode": "its sampling"}
_BOUND_DO = {
    "sequences": "Raise --max-num-seqs.",
    "budget": "Raise --max-num-batched-tokens.",
    "blocks": "Raise --num-blocks.",
}


@dataclass(frozen=True, slots=True)
class FirstToken:
    """Seconds until a request's first token. `first_decode` is part of the step that ends the prefill."""

    request_id: str
    queue: float
    prefill: float
    first_decode: float

    @property
    def total(self) -> float:
        return self.queue + self.prefill + self.first_decode


def bound_findings(report: Report) -> Iterator[Finding]:
    """Whether queue, prefill or decode takes most of the requests' time."""
    run = report.run
    records = run.ran
    sums = {
        "queue": sum(record.queue_s for record in records),
        "prefill": sum(record.prefill_s for record in records),
        "decode": sum(record.decode_s for record in records),
    }
    whole = sum(sums.values())
    if not whole:
        yield unavailable("bound", "What binds the run", "no request that ran has ended", run.span(records))
        return
    shares = {name: percent(value, whole) for name, value in sums.items()}
    phase = max(shares, key=lambda name: shares[name])
    binds = shares[phase] >= BOUND_SHARE
    severity = _BOUND[phase] if binds else "info"
    title = f"The run is {phase}-bound" if binds else "No phase takes half of the time"
    queue = phase == "queue" and binds
    reason, advice = _queue_reason(report.walk.waited) if queue else ("", None)
    parts = ", ".join(f"{shares[name]:.0f} % in {name}" for name in shares)
    yield Finding(
        id="bound",
        severity=severity,
        title=title,
        statement=f"{counted(len(records), 'request')} spent {seconds(whole)} together: {parts}.{reason}",
        span=run.span(records),
        evidence=(
            *(Figure(name, shares[name], "%") for name in shares),
            *(_waits(report.walk.waited) if queue else ()),
        ),
        request_ids=worst_first({r.request_id: getattr(r, f"{phase}_s") for r in records})[:SHOWN_IDS],
        confidence="inferred" if advice else "measured",
        recommendation=advice,
        timed=True,
    )


def _waits(waited: Waited) -> Iterator[Figure]:
    """Steps that passed somebody over, by what they were full of."""
    yield Figure("passed over", waited.total, "steps")
    for name, words in (("sequences", "max_num_seqs full"), ("budget", "budget full"), ("blocks", "blocks full")):
        if getattr(waited, name):
            yield Figure(words, getattr(waited, name), "steps")


def _queue_reason(waited: Waited) -> tuple[str, str | None]:
    """What most of the steps that passed a waiting request over were full of."""
    counts = {name: getattr(waited, name) for name in _BOUND_DO}
    name = max(counts, key=lambda each: counts[each])
    if not counts[name]:
        return "", None
    full = {
        "sequences": "max_num_seqs requests ran",
        "budget": "the token budget was used up",
        "blocks": "blocks ran out",
    }
    of = f"{counts[name]:,} of {counted(waited.total, 'step')}"
    return f" In {of} that left somebody waiting, {full[name]}.", _BOUND_DO[name]


def first_token_findings(report: Report) -> Iterator[Finding]:
    """The time to the first token, split into its parts."""
    run = report.run
    answered = [record for record in run.ran if any(record.output_token_ids)]
    title = "What the first token waits for"
    if not answered:
        yield unavailable("first-token", title, "no request with an output token has ended", run.span(answered))
        return
    ending = _prefill_ends(run)
    parts = [_first_token(record, ending[record.request_id]) for record in answered if record.request_id in ending]
    if not parts:
        missing = "the steps of the first tokens are no longer recorded"
        yield unavailable("first-token", title, missing, run.span(answered))
        return
    yield _first_token_finding(run, parts)


def _first_token_finding(run: Run, parts: list[FirstToken]) -> Finding:
    middle = {name: median(getattr(part, name) for part in parts) for name in ("queue", "prefill", "first_decode")}
    worst = max(parts, key=lambda part: part.total)
    typical = median(part.total for part in parts)
    uneven = worst.total >= WORST_S and worst.total >= WORST_TIMES * typical
    phase = max(middle, key=lambda name: middle[name])
    known = {part.request_id for part in parts}
    return Finding(
        id="first-token",
        severity="medium" if uneven else "info",
        title=f"The first token of {worst.request_id} took {seconds(worst.total)}, the median {seconds(typical)}"
        if uneven
        else f"The first token waits for {_PHASES[phase]} most",
        statement=f"Median over {counted(len(parts), 'request')}; the worst is {worst.request_id}. First decode is "
        "the sampling and handing out at the end of the step that finishes the prompt.",
        span=run.span([record for record in run.ran if record.request_id in known]),
        evidence=(
            *(Figure(f"{name.replace('_', ' ')}, median", value, "s") for name, value in middle.items()),
            Figure("first token, median", typical, "s"),
            *(Figure(f"{name.replace('_', ' ')}, worst", getattr(worst, name), "s") for name in middle),
            Figure("first token, worst", worst.total, "s"),
        ),
        request_ids=worst_first({part.request_id: part.total for part in parts})[:SHOWN_IDS],
        timed=True,
    )


def _prefill_ends(run: Run) -> dict[str, StepRecord]:
    """By request id the step that gave its first token: the last prefill before its first decode."""
    found: dict[str, StepRecord] = {}
    decoded: set[str] = set()
    for step in run.snapshot.steps:
        for entry in step.batch:
            if entry.kind == "decode":
                decoded.add(entry.request_id)
            elif entry.request_id not in decoded:
                found[entry.request_id] = step
    # A request that decoded before the first recorded step may show a later prefill, after a preemption.
    oldest = min(run.steps, default=0)
    begun = {record.request_id: record.first_step or 0 for record in run.ran}
    return {name: step for name, step in found.items() if begun.get(name, 0) >= oldest}


def _first_token(record: RequestRecord, step: StepRecord) -> FirstToken:
    """The prefill of a record lasts to the first token, so the end of its last step is taken off."""
    tail = min((step.ms.sample + step.ms.publish) / 1000, record.prefill_s)
    return FirstToken(record.request_id, record.queue_s, record.prefill_s - tail, tail)
