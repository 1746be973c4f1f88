"""How much of what it may the engine used: the token budget, the batch, the cache."""

from __future__ import annotations

from collections.abc import Iterator

from yaie_widgets.figures import count, counted

from .finding import Figure, Finding, unavailable
from .run import Run, percent
from .walk import Report

# A step counts as full from this share of the budget on: the rest is too small for another chunk.
FULL = 90.0
# The batch limit is worth raising when it turned somebody away in a quarter of the steps or more.
SEATS_SHARE = 25.0


def usage_findings(report: Report) -> Iterator[Finding]:
    """Budget use, batch occupancy and hit rate over the recorded steps."""
    run = report.run
    if not run.snapshot.steps:
        missing = "no step has been recorded yet"
        yield unavailable("budget-use", "Use of the token budget", missing, run.window)
        yield unavailable("batch", "Requests in a step", missing, run.window)
    else:
        yield _budget(run)
        yield _batch(report)
    yield _hits(run)


def _budget(run: Run) -> Finding:
    budget, steps = run.settings.budget, run.snapshot.steps
    tokens = [step.num_prefill_tokens + step.num_decode_tokens for step in steps]
    mean = sum(tokens) / len(tokens)
    full = sum(1 for number in tokens if percent(number, budget) >= FULL)
    return Finding(
        id="budget-use",
        severity="info",
        title=f"Steps use {percent(mean, budget):.1f} % of the token budget",
        statement=f"{mean:,.1f} of {counted(budget, 'token')} in a step on average; {counted(full, 'step')} of "
        f"{count(len(tokens))} used {FULL:.0f} % or more. Decode steps need one token for each request.",
        span=run.window,
        evidence=(
            Figure("budget", budget, "tokens"),
            Figure("mean", mean, "tokens"),
            Figure("most", max(tokens), "tokens"),
            Figure("mean use", percent(mean, budget), "%"),
            Figure("full", full, "steps"),
        ),
    )


def _batch(report: Report) -> Finding:
    run = report.run
    sizes = [len(step.batch) for step in run.snapshot.steps]
    most, mean = run.settings.max_num_seqs, sum(sizes) / len(sizes)
    turned = report.walk.waited.sequences
    short = percent(turned, len(sizes)) >= SEATS_SHARE
    return Finding(
        id="batch",
        severity="medium" if short else "info",
        title="max_num_seqs kept requests waiting"
        if short
        else f"{mean:,.1f} of {count(most)} places in a step are taken on average",
        statement=f"A step held {mean:,.1f} requests on average and {count(max(sizes))} at most; "
        f"{counted(turned, 'step')} of {count(len(sizes))} were full and left somebody waiting.",
        span=run.window,
        evidence=(
            Figure("places", most),
            Figure("mean", mean, "requests"),
            Figure("most", max(sizes), "requests"),
            Figure("mean use", percent(mean, most), "%"),
            Figure("turned away", turned, "steps"),
        ),
        recommendation="Raise --max-num-seqs." if short else None,
    )


def _hits(run: Run) -> Finding:
    records = run.ran
    asked = sum(len(record.prompt_token_ids) for record in records)
    if not asked:
        return unavailable("hit-rate", "Hit rate of the cache", "no request that ran has ended", run.span(records))
    cached = sum(record.num_cached_tokens for record in records)
    hit = [record.request_id for record in records if record.num_cached_tokens]
    return Finding(
        id="hit-rate",
        severity="info",
        title=f"{percent(cached, asked):.1f} % of prompt tokens came from the cache",
        statement=f"{count(cached)} of {counted(asked, 'prompt token')}, in {count(len(hit))} of "
        f"{counted(len(records), 'request')}.",
        span=run.span(records),
        evidence=(
            Figure("cached", cached, "tokens"),
            Figure("prompts", asked, "tokens"),
            Figure("hit rate", percent(cached, asked), "%"),
        ),
        request_ids=tuple(hit),
    )
