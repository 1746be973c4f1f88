"""transformers' continuous batching, with settings that suit a CPU; not tuned further."""

from __future__ import annotations

import time
from typing import Any

from yaie_magic.bench.trial import Served, Trial
from yaie_magic.bench.workloads import Ask, Workload

from . import plain_model
from .peer import Setup, version_of

PAGE = 32
FEWEST_TOKENS, MOST_TOKENS = 12_288, 24_576
SILENCE_S = 600.0


class Continuous:
    """A manager for each repetition: prefixes are shared within it, and none is left from the one before."""

    def __init__(self, setup: Setup) -> None:
        self._model, self._at_most = plain_model.load(setup), setup.at_most
        self.about = {"version": f"transformers {version_of('transformers')}, torch {version_of('torch')}"}

    def run(self, workload: Workload) -> Trial:
        """One repetition. A request that is not counted goes before, since the first one of a manager is slower."""
        from transformers import ContinuousBatchingConfig, GenerationConfig

        total = sum(len(ask.prompt) + ask.tokens for ask in workload.asks)
        room = ContinuousBatchingConfig(
            page_size=PAGE,
            num_blocks=min(max(total, FEWEST_TOKENS), MOST_TOKENS) // PAGE,
            max_batch_tokens=512,
            max_requests_per_batch=max(64, self._at_most),
            allow_block_sharing=True,
            use_cuda_graph=False,
            use_async_batching=False,
        )
        config = GenerationConfig(do_sample=False, eos_token_id=-1, pad_token_id=0)
        with self._model.continuous_batching_context_manager(
            generation_config=config, continuous_batching_config=room
        ) as manager:
            _serve(manager, (Ask(workload.asks[0].prompt[:1] * 20, 2),))
            batches = [workload.asks] if workload.at_once else [(ask,) for ask in workload.asks]
            start = time.perf_counter()
            served = [each for batch in batches for each in _serve(manager, batch)]
            return Trial(time.perf_counter() - start, tuple(served))

    def close(self) -> None:
        """Nothing is held between repetitions."""


def _serve(manager: Any, asks: tuple[Ask, ...]) -> list[Served]:
    """Answers in the order of their requests.

    Raises:
        RuntimeError: it failed, or was silent for ten minutes.
    """
    start = heard = time.perf_counter()
    names = [manager.add_request(list(ask.prompt), max_new_tokens=ask.tokens, record_timestamps=True) for ask in asks]
    ended: dict[str, Any] = {}
    while len(ended) < len(asks):
        output = manager.get_result(timeout=0.5)
        if output is None and (not manager.is_running() or time.perf_counter() - heard > SILENCE_S):
            raise RuntimeError("continuous batching stopped by itself; the log says why")
        if output is None:
            continue
        heard = time.perf_counter()
        if output.error:
            raise RuntimeError(f"continuous batching: {output.error}")
        if output.is_finished():
            ended[output.request_id] = output
    outputs = [ended[name] for name in names]
    return [
        Served(each.timestamps[0] - start, each.timestamps[-1] - start, tuple(each.generated_tokens))
        for each in outputs
    ]


def open_peer(setup: Setup) -> Continuous:
    """Load it."""
    return Continuous(setup)
