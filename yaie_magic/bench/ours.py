"""A workload answered by an engine of ours, timed from outside."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from .trial import Served, Trial

if TYPE_CHECKING:
    from yaie_engine import LLM, RequestOutput, SamplingParams

    from .workloads import Ask, Workload


def run(llm: LLM, workload: Workload) -> Trial:
    """One repetition, with nothing in the prefix cache at its start.

    Raises:
        YaieError: a request failed.
        RuntimeError: another number of tokens came than was asked for.
    """
    llm.reset()
    start = time.perf_counter()
    served = _at_once(llm, workload) if workload.at_once else tuple(_alone(llm, ask) for ask in workload.asks)
    return Trial(time.perf_counter() - start, served)


def _params(ask: Ask) -> SamplingParams:
    from yaie_engine import SamplingParams

    return SamplingParams(temperature=0, max_tokens=ask.tokens, ignore_eos=True)


def _alone(llm: LLM, ask: Ask) -> Served:
    """A request that is read as a notebook reads it: its first token is there when the first text is."""
    start = time.perf_counter()
    handle = llm.submit(list(ask.prompt), _params(ask))
    first = 0.0
    for _ in handle:
        first = first or time.perf_counter() - start
    total = time.perf_counter() - start
    return Served(first or total, total, _ids(handle.result(), ask))


def _at_once(llm: LLM, workload: Workload) -> tuple[Served, ...]:
    """Requests that are handed over together; when each began and ended, the engine says."""
    handles = [llm.submit(list(ask.prompt), _params(ask)) for ask in workload.asks]
    outputs = [handle.result() for handle in handles]
    return tuple(
        Served(output.metrics.ttft_s or output.metrics.total_s, output.metrics.total_s, _ids(output, ask))
        for output, ask in zip(outputs, workload.asks, strict=True)
    )


def _ids(output: RequestOutput, ask: Ask) -> tuple[int, ...]:
    if output.error is not None:
        raise output.error
    token_ids = output.outputs[0].token_ids
    if len(token_ids) != ask.tokens:
        raise RuntimeError(f"{len(token_ids)} tokens came, {ask.tokens} were asked for")
    return token_ids
