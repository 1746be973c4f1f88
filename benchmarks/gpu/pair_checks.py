"""Two engines at once, on two models: each gives the tokens that it gives alone."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import solo
from .context import Context

ROUNDS = 4


def run(context: Context, folders: Mapping[str, Path]) -> None:
    """They share the device, its stream and the loaded kernels, and step on a thread each."""
    name = "two engines at once"
    with context.guarded(name):
        alone = {}
        for kind, folder in folders.items():
            with solo.engine(context, folder) as llm:
                alone[kind] = solo.answers(context, llm)
        first, second = folders
        with (
            solo.engine(context, folders[first]) as one,
            solo.engine(context, folders[second]) as other,
            ThreadPoolExecutor(2) as threads,
        ):
            for index in range(1 if context.tiny else ROUNDS):
                running = {
                    kind: threads.submit(solo.answers, context, llm) for kind, llm in ((first, one), (second, other))
                }
                together = {kind: future.result() for kind, future in running.items()}
                detail = f"{together} at once, {alone} alone"
                context.check(f"{name} give the tokens of each alone, round {index + 1}", together == alone, detail)
