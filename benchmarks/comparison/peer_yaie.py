"""This engine as a peer: in the process that asks, as a notebook has it."""

from __future__ import annotations

from yaie_magic import __version__
from yaie_magic.bench import ours
from yaie_magic.bench.trial import Trial
from yaie_magic.bench.workloads import Workload

from .peer import Setup


class Ours:
    """An engine with its defaults; only room and type are given."""

    def __init__(self, setup: Setup) -> None:
        import torch

        from yaie_engine import LLM

        torch.set_num_threads(setup.threads)
        self._llm = LLM(setup.model, dtype=setup.dtype, max_num_seqs=max(64, setup.at_most))
        self.about = {"version": __version__, "attention": self._llm.snapshot().model.attention_backend}

    def run(self, workload: Workload) -> Trial:
        """One repetition."""
        return ours.run(self._llm, workload)

    def close(self) -> None:
        """End the engine."""
        self._llm.close()


def open_peer(setup: Setup) -> Ours:
    """Load it."""
    return Ours(setup)
