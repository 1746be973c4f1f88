"""transformers `generate`: requests that arrive together as one batch, padded on the left; else one by one."""

from __future__ import annotations

import time
from typing import Any

from yaie_magic.bench.trial import Served, Trial
from yaie_magic.bench.workloads import Ask, Workload

from . import plain_model
from .peer import Setup, version_of


class Ticks:
    """A streamer that only looks at the clock: `times` has one entry for each token of the answers."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self._prompt_seen = False

    def put(self, value: Any) -> None:
        """Called with the prompt, then at each step."""
        if self._prompt_seen:
            self.times.append(time.perf_counter())
        self._prompt_seen = True

    def end(self) -> None:
        """Nothing is left to do."""


class Generate:
    """The model's own `generate`; `options` go to it."""

    def __init__(self, setup: Setup, **options: Any) -> None:
        self.model = plain_model.load(setup)
        self._options = options
        self.about = {"version": f"transformers {version_of('transformers')}, torch {version_of('torch')}"}

    def run(self, workload: Workload) -> Trial:
        """One repetition; `generate` keeps nothing from one call to the next."""
        batches = [workload.asks] if workload.at_once else [(ask,) for ask in workload.asks]
        start = time.perf_counter()
        served = [each for batch in batches for each in self._batch(batch)]
        return Trial(time.perf_counter() - start, tuple(served))

    def _batch(self, asks: tuple[Ask, ...]) -> list[Served]:
        import torch

        longest, tokens = max(len(ask.prompt) for ask in asks), max(ask.tokens for ask in asks)
        ids = torch.zeros(len(asks), longest, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, ask in enumerate(asks):
            ids[row, longest - len(ask.prompt) :] = torch.tensor(ask.prompt)
            mask[row, longest - len(ask.prompt) :] = 1
        ticks, start = Ticks(), time.perf_counter()
        whole = self.model.generate(
            input_ids=ids, attention_mask=mask, max_new_tokens=tokens, streamer=ticks, **self._options
        )
        first = ticks.times[0] - start
        return [
            Served(first, ticks.times[ask.tokens - 1] - start, tuple(whole[row, longest:][: ask.tokens].tolist()))
            for row, ask in enumerate(asks)
        ]

    def close(self) -> None:
        """Nothing is held outside this process."""


def open_peer(setup: Setup) -> Generate:
    """Load it, with its growing cache."""
    return Generate(setup)
