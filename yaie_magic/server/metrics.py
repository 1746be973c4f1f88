"""The engine's counters and the times of requests for Prometheus, under vLLM's names with our prefix: GET /metrics."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from starlette.responses import Response

from .memory import process_memory
from .slot import EngineSlot

if TYPE_CHECKING:
    from yaie_engine import LLM, EngineSnapshot, RequestOutput

    from .ledger import Counts

LATENCIES = (0.005, 0.01, 0.02, 0.04, 0.08, 0.15, 0.3, 0.6, 1, 2, 4, 8, 15, 30, 60, 120)
TOKEN_TIMES = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.08, 0.15, 0.3, 0.6, 1, 2)
FRESH_S = 0.5


class Metrics:
    """What is observed of each ended request, and a collector that reads the engine when somebody scrapes.

    `counts` are those of a server, whose requests are `observed`; without one they are the engine's.
    """

    def __init__(self, slot: EngineSlot, counts: Counts | None) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(_EngineCollector(slot, counts))
        self._whose = "Requests of the history." if counts is None else "HTTP requests."
        self._first = self._histogram(
            "time_to_first_token_seconds", "From a request's arrival in the queue to its first token.", LATENCIES
        )
        self._between = self._histogram(
            "inter_token_latency_seconds", "Time between tokens: a request's mean, once for each pair.", TOKEN_TIMES
        )
        self._whole = self._histogram(
            "e2e_request_latency_seconds", "From a request's arrival in the queue to its end.", LATENCIES
        )

    def _histogram(self, name: str, text: str, buckets: Sequence[float]) -> Histogram:
        return Histogram(f"yaie:{name}", f"{text} {self._whose}", buckets=buckets, registry=self.registry)

    def observe(self, outputs: Iterable[RequestOutput]) -> None:
        """Requests that ended well."""
        for output in outputs:
            times = output.metrics
            self.note(times.ttft_s, times.tpot_s, [len(choice.token_ids) for choice in output.outputs], times.total_s)

    def note(self, ttft_s: float | None, tpot_s: float | None, tokens: Sequence[int], total_s: float) -> None:
        """One request in seconds, with the tokens of its choices."""
        if ttft_s is not None:
            self._first.observe(ttft_s)
        if tpot_s is not None:
            for _ in range(max(tokens) - 1):
                self._between.observe(tpot_s)
        self._whole.observe(total_s)

    def text(self) -> bytes:
        """What Prometheus reads. Waits for the engine's next step boundary."""
        return generate_latest(self.registry)

    def response(self) -> Response:
        """The answer to a scrape."""
        return Response(self.text(), media_type=CONTENT_TYPE_LATEST)


def of_history(llm: LLM) -> Metrics:
    """The figures of an engine that nobody serves; times are those of the requests that its history remembers."""
    metrics = Metrics(EngineSlot(llm), None)
    for record in llm.history():
        tokens = [len(ids) for ids in record.output_token_ids]
        if record.error is None and "cancelled" not in record.finish_reasons and any(tokens):
            more = max(tokens) - 1
            ttft, tpot = record.queue_s + record.prefill_s, record.decode_s / more if more else None
            metrics.note(ttft, tpot, tokens, record.total_s)
    return metrics


class _EngineCollector(Collector):
    """Reads one snapshot for all figures, at most twice a second."""

    def __init__(self, slot: EngineSlot, counts: Counts | None) -> None:
        self._slot, self._counts = slot, counts
        self._kept: EngineSnapshot | None = None
        self._at = 0.0

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        if self._counts is not None:
            outcomes = CounterMetricFamily("yaie:requests", "Generating HTTP requests by outcome.", labels=["outcome"])
            for outcome, count in self._counts.by_outcome().items():
                outcomes.add_metric([outcome], count)
            yield outcomes
        used, peak = process_memory()
        yield GaugeMetricFamily("yaie:process_memory_bytes", "Resident memory of the process.", used)
        yield GaugeMetricFamily("yaie:process_memory_peak_bytes", "The most it was.", peak)
        snapshot = self._snapshot()
        if snapshot is not None:
            yield from _of_engine(snapshot, self._slot)

    def _snapshot(self) -> EngineSnapshot | None:
        llm = self._slot.engine
        if llm is not None and time.monotonic() - self._at > FRESH_S:
            self._kept, self._at = llm.snapshot(), time.monotonic()
        return self._kept


def _of_engine(snapshot: EngineSnapshot, slot: EngineSlot) -> Iterable[Metric]:
    counters, queue, blocks = snapshot.counters, snapshot.queue, snapshot.blocks
    held = blocks.held / blocks.total if blocks.total else 0.0
    for name, text, value in (
        ("num_requests_running", "Sequences in prefill or decode.", queue.prefill + queue.decode),
        ("num_requests_waiting", "Sequences that wait.", queue.waiting + queue.preempted + queue.swapped),
        ("kv_cache_usage_perc", "Share of KV blocks held by running requests; 1 is all.", held),
        ("batch_fill_ratio", "Sequences in the newest step, as a share of max_num_seqs.", _fill(snapshot, slot)),
    ):
        yield GaugeMetricFamily(f"yaie:{name}", text, value)
    for name, text, value in (
        ("prefix_cache_queries", "Prompt tokens looked up in the prefix cache.", counters.prompt_tokens),
        ("prefix_cache_hits", "Prompt tokens found there.", counters.cached_tokens),
        ("num_preemptions", "Preemptions.", counters.preemptions),
        ("prompt_tokens", "Prompt tokens of ended requests.", counters.prompt_tokens),
        ("generation_tokens", "Tokens generated.", counters.generated_tokens),
        ("invariant_breaches", "Times that the bookkeeping contradicted itself.", counters.breaches),
    ):
        yield CounterMetricFamily(f"yaie:{name}", text, value)


def _fill(snapshot: EngineSnapshot, slot: EngineSlot) -> float:
    llm = slot.engine
    if llm is None or not snapshot.steps or not snapshot.requests:
        return 0.0
    return len(snapshot.steps[-1].batch) / llm.config.max_num_seqs
