"""Settings that contradict each other, the model's context or the machine."""

from __future__ import annotations

from collections.abc import Iterator

from yaie_widgets.figures import count, counted

from .finding import Figure, Finding
from .run import Run
from .walk import Report

# The default pool on a CPU holds a quarter of max_model_len x max_num_seqs, since few requests use all of their
# context; at an eighth and less, promises and memory have lost touch.
FAR_ABOVE = 8


def setting_findings(report: Report) -> Iterator[Finding]:
    """One finding for each contradiction."""
    run = report.run
    for check in (_budget_and_blocks, _budget_and_seats, _threshold, _context, _promises, _whole_prompts, _machine):
        yield from check(run)


def _budget_and_blocks(run: Run) -> Iterator[Finding]:
    budget, block = run.settings.asked_budget, run.snapshot.blocks.block_size
    if budget < block:
        yield Finding(
            id="budget-below-block",
            severity="medium",
            title="A step cannot fill one block",
            statement=f"max_num_batched_tokens is {count(budget)}, block_size {count(block)}: every block of a "
            "prompt takes several steps, and the tree grows by parts of blocks.",
            span=run.window,
            evidence=(Figure("budget", budget, "tokens"), Figure("block size", block, "tokens")),
            recommendation=f"Raise --max-num-batched-tokens to {count(block)} or more, or lower --block-size.",
        )


def _budget_and_seats(run: Run) -> Iterator[Finding]:
    budget, seats = run.settings.budget, run.settings.max_num_seqs
    if budget < seats:
        yield Finding(
            id="budget-below-seqs",
            severity="medium",
            title="The token budget is smaller than the batch",
            statement=f"Each decoding request needs one token in a step: of max_num_seqs {count(seats)} only "
            f"{count(budget)} can go on in one step, and nothing is left for prompts.",
            span=run.window,
            evidence=(Figure("budget", budget, "tokens"), Figure("places", seats)),
            recommendation=f"Raise --max-num-batched-tokens above {count(seats)}, or lower --max-num-seqs.",
        )


def _threshold(run: Run) -> Iterator[Finding]:
    budget, threshold = run.settings.budget, run.settings.threshold
    if threshold > budget:
        yield Finding(
            id="threshold-above-budget",
            severity="info",
            title="long_prefill_token_threshold has no effect",
            statement=f"It limits a chunk to {counted(threshold, 'token')}, but a step holds {count(budget)}.",
            span=run.window,
            evidence=(Figure("threshold", threshold, "tokens"), Figure("budget", budget, "tokens")),
            recommendation="Lower --long-prefill-token-threshold below the budget, or leave it out.",
        )


def _context(run: Run) -> Iterator[Finding]:
    tokens, context = _pool_tokens(run), run.snapshot.model.max_model_len
    if 0 < tokens < context:
        yield Finding(
            id="pool-below-context",
            severity="medium",
            title="One request of full length does not fit into the pool",
            statement=f"max_model_len promises {counted(context, 'token')}, the pool holds {count(tokens)}: "
            "a longer request is refused.",
            span=run.window,
            evidence=(Figure("context", context, "tokens"), Figure("pool", tokens, "tokens")),
            recommendation=f"Raise --num-blocks, or set --max-model-len to {tokens} or less.",
        )


def _promises(run: Run) -> Iterator[Finding]:
    tokens, seats = _pool_tokens(run), run.settings.max_num_seqs
    promised = run.snapshot.model.max_model_len * seats
    if not tokens or promised <= FAR_ABOVE * tokens:
        return
    preempted = sum(len(step.preempted) for step in run.snapshot.steps)
    yield Finding(
        id="promises-above-pool",
        severity="medium" if preempted else "info",
        title="Settings promise far more context than the pool holds",
        statement=f"max_model_len times max_num_seqs is {counted(promised, 'token')}, {count(promised // tokens)} "
        f"times the pool of {count(tokens)}. Requests that use their context get in each other's way.",
        span=run.window,
        evidence=(
            Figure("promised", promised, "tokens"),
            Figure("pool", tokens, "tokens"),
            Figure("preemptions", preempted),
        ),
        recommendation="Lower --max-num-seqs or --max-model-len, or raise --num-blocks." if preempted else None,
    )


def _whole_prompts(run: Run) -> Iterator[Finding]:
    settings = run.settings
    longer = [r for r in run.ran if len(r.prompt_token_ids) - r.num_cached_tokens > settings.asked_budget]
    if settings.chunked or not longer:
        return
    most = max(len(record.prompt_token_ids) for record in longer)
    yield Finding(
        id="whole-prompts-above-budget",
        severity="medium",
        title="Prompts longer than the budget run in one piece",
        statement=f"Chunked prefill is off and {counted(len(longer), 'prompt')} had more tokens to compute than the "
        f"budget of {count(settings.asked_budget)}: such a step holds up every running request.",
        span=run.span(run.ran),
        evidence=(
            Figure("budget", settings.asked_budget, "tokens"),
            Figure("longest prompt", most, "tokens"),
            Figure("prompts", len(longer)),
        ),
        request_ids=tuple(record.request_id for record in longer),
        recommendation="Load with --enable-chunked-prefill, or raise --max-num-batched-tokens.",
    )


def _machine(run: Run) -> Iterator[Finding]:
    model = run.snapshot.model
    if model.attention_backend == "emulated":
        yield Finding(
            id="emulated-kernels",
            severity="medium",
            title="CUDA kernels are emulated on the CPU",
            statement="Attention is computed by the kernels' code on an emulator: right, and many times slower than "
            "the reference backend.",
            span=run.window,
            recommendation="Load with --attention-backend reference unless the kernels are what you look at.",
        )
    if run.settings.eager and model.device.startswith("cuda"):
        yield Finding(
            id="eager-on-gpu",
            severity="info",
            title="CUDA graphs are switched off",
            statement="enforce_eager launches every kernel of a decode step by itself.",
            span=run.window,
            recommendation="Load without --enforce-eager where speed counts.",
        )


def _pool_tokens(run: Run) -> int:
    return run.snapshot.blocks.total * run.snapshot.blocks.block_size
