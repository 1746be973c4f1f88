"""A yardstick for edits: the model's plain forward over what an edit changed, the KV of the rest already in place."""

from __future__ import annotations

import inspect
import time
from typing import Any

from yaie_magic.bench.trial import Served, Trial
from yaie_magic.bench.workloads import Workload

from . import plain_model
from .peer import Setup, version_of


class InPlace:
    """Only the suffix is timed, up to its first token; making the prefix's KV is not."""

    def __init__(self, setup: Setup) -> None:
        self._model = plain_model.load(setup)
        known = inspect.signature(self._model.forward).parameters
        self._cache = "cache" if "cache" in known else "past_key_values"  # its name until transformers 5.24
        self.about = {"version": f"transformers {version_of('transformers')}, torch {version_of('torch')}"}

    def run(self, workload: Workload) -> Trial:
        """One repetition: one token for each request."""
        served: list[Served] = []
        before: tuple[int, ...] = ()
        cache: Any = None
        for ask in workload.asks:
            depth = min(common(before, ask.prompt), len(ask.prompt) - 1)
            cache = self._beginning(ask.prompt[:depth], cache, len(before) - depth)
            served.append(self._suffix(ask.prompt[depth:], cache))
            before = ask.prompt
        return Trial(sum(each.total for each in served), tuple(served))

    def _beginning(self, prompt: tuple[int, ...], cache: Any, longer: int) -> Any:
        """A cache that holds the KV of `prompt` alone: one that holds `longer` more tokens is cut, if it can be."""
        import torch
        from transformers import DynamicCache

        if cache is not None and longer > 0:
            try:
                cache.crop(-longer)
                return cache
            except RuntimeError:  # a sliding window has let go of what lies before
                pass
        cache = DynamicCache(config=self._model.config)
        if prompt:
            self._model(torch.tensor([prompt]), **{self._cache: cache}, logits_to_keep=1)
        return cache

    def _suffix(self, suffix: tuple[int, ...], cache: Any) -> Served:
        import torch

        start = time.perf_counter()
        logits = self._model(torch.tensor([suffix]), **{self._cache: cache}, logits_to_keep=1).logits
        token_id = int(logits[0, -1].argmax())
        seconds = time.perf_counter() - start
        return Served(seconds, seconds, (token_id,))

    def close(self) -> None:
        """Nothing is held outside this process."""


def common(first: tuple[int, ...], second: tuple[int, ...]) -> int:
    """How many ids two prompts have in common from their start."""
    pairs = zip(first, second, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))


def open_peer(setup: Setup) -> InPlace:
    """Load it."""
    return InPlace(setup)
