"""Training: tokenizer first, then the network, by a plan of steps and not by the clock."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import torch
import torch.multiprocessing as processes
from tokenizers import Tokenizer

from .corpus import short
from .export import export
from .network import Network, Shape
from .tokens import train_tokenizer
from .worker import Common, work

STEPS_PER_MINUTE = 110  # on two quiet cores
WORKERS = 2
_TOKENIZER_TEXTS = 30000


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything a run depends on."""

    steps: int
    seed: int = 0
    shape: Shape = field(default_factory=Shape)
    report_every: int = 25


def make_tokenizer(recipe: Recipe) -> Tokenizer:
    """Learn the tokenizer from fresh text of the generator."""
    rng = Random(recipe.seed + 1)
    texts = ("".join(text for text, _ in short(rng)) for _ in range(_TOKENIZER_TEXTS))
    return train_tokenizer(texts, recipe.shape.vocab_size)


def train(recipe: Recipe, out: Path) -> None:
    """Train by `recipe` and write the model folder `out`."""
    torch.manual_seed(recipe.seed)
    tokenizer = make_tokenizer(recipe)
    network = Network(recipe.shape)
    count = sum(weight.numel() for weight in network.parameters())
    print(f"{count / 1e6:.2f} M weights, {recipe.steps} steps", flush=True)
    network.share_memory()
    context = processes.get_context("spawn")
    shared = [torch.zeros(size).share_memory_() for size in ((WORKERS, count), (WORKERS,), (WORKERS,))]
    common = Common(network, *shared, barrier=context.Barrier(WORKERS))
    processes.spawn(work, args=(common, tokenizer.to_str(), recipe), nprocs=WORKERS)
    export(network, tokenizer, out)
    print(f"wrote {out}", flush=True)
