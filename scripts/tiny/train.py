"""Training: tokenizer first, then the network, by a plan of steps and not by the clock."""

from __future__ import annotations

from dataclasses import dataclass, field
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from random import Random

import torch
from tokenizers import Tokenizer
from torch.multiprocessing import get_context

from .corpus import short
from .export import export, history_of, restore
from .network import Network, Shape
from .tokens import train_tokenizer
from .worker import Common, work

STEPS_PER_MINUTE = 90  # on two quiet cores
WORKERS = 2
_TOKENIZER_TEXTS = 30000


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything a run depends on."""

    steps: int
    seed: int = 0
    shape: Shape = field(default_factory=Shape)
    report_every: int = 25
    resume: Path | None = None


def make_tokenizer(recipe: Recipe) -> Tokenizer:
    """Learn the tokenizer from fresh text of the generator."""
    rng = Random(recipe.seed + 1)
    texts = ("".join(text for text, _ in short(rng)) for _ in range(_TOKENIZER_TEXTS))
    return train_tokenizer(texts, recipe.shape.vocab_size)


def train(recipe: Recipe, out: Path) -> None:
    """Train by `recipe` and write the model folder `out`."""
    torch.manual_seed(recipe.seed)
    network = Network(recipe.shape)
    if recipe.resume:
        tokenizer = Tokenizer.from_file(str(recipe.resume / "tokenizer.json"))
        restore(network, recipe.resume)
    else:
        tokenizer = make_tokenizer(recipe)
    count = sum(weight.numel() for weight in network.parameters())
    print(f"{count / 1e6:.2f} M weights, {recipe.steps} steps", flush=True)
    network.share_memory()
    context = get_context("spawn")
    gradients, losses, cpu = (torch.zeros(size).share_memory_() for size in ((WORKERS, count), (WORKERS,), (WORKERS,)))
    common = Common(network, gradients, losses, cpu, context.Barrier(WORKERS))
    workers = [
        context.Process(target=work, args=(rank, common, tokenizer.to_str(), recipe), daemon=True)
        for rank in range(WORKERS)
    ]
    finish(workers, common)
    before = history_of(recipe.resume) + ", then " if recipe.resume else ""
    export(network, tokenizer, out, f"{before}{recipe.steps} steps with seed {recipe.seed}")
    print(f"wrote {out}", flush=True)


def finish(workers: list[SpawnProcess], common: Common) -> None:
    """Start the workers and wait until all are done; when one fails, the others end too."""
    for worker in workers:
        worker.start()
    while any(worker.is_alive() for worker in workers):
        wait([worker.sentinel for worker in workers if worker.is_alive()])
        if any(worker.exitcode for worker in workers):
            common.barrier.abort()
    if failed := [worker.exitcode for worker in workers if worker.exitcode]:
        raise SystemExit(f"training failed: workers ended with {failed}")
