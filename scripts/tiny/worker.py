"""Workers: processes of one thread that share the weights; each learns its own text and updates its own part.

Where others use the same cores this costs far less than threads inside every operation: workers wait for each other
twice per step, not hundreds of times.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier
from typing import TYPE_CHECKING

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from .batches import Batches
from .network import Network
from .optimiser import Optimiser, plan

if TYPE_CHECKING:
    from .train import Recipe


@dataclass(slots=True)
class Common:
    """What all workers see: weights, one row of gradients per worker, and the meeting point."""

    network: Network
    gradients: Tensor  # [workers, weights]
    losses: Tensor  # [workers]
    cpu: Tensor  # [workers], seconds
    barrier: Barrier


def own_part(network: Network, rank: int, workers: int) -> dict[str, nn.Parameter]:
    """Return the weights that worker `rank` updates: whole layers in turn, the embedding with the first."""
    part: dict[str, nn.Parameter] = {}
    for name, weight in network.named_parameters():
        words = name.split(".")
        owner = int(words[1]) % workers if words[0] == "layers" else 0
        if owner == rank:
            part[name] = weight
    return part


def work(rank: int, common: Common, tokenizer_json: str, recipe: Recipe) -> None:
    """Take the planned steps; the first worker prints a line of progress now and then."""
    torch.set_num_threads(1)
    network, workers = common.network, len(common.gradients)
    if shutil.which("g++"):
        for layer in network.layers:
            layer.compile(dynamic=False)
    batches = Batches(Tokenizer.from_str(tokenizer_json), recipe.seed * workers + rank)
    part = own_part(network, rank, workers)
    optimiser, spans = Optimiser(part), _spans(network)
    progress = Progress(recipe)
    for step in range(recipe.steps):
        ids, targets = batches.next()
        with torch.autocast("cpu", torch.bfloat16):
            loss = network(ids, targets)
        loss.backward()
        for name, weight in network.named_parameters():
            if weight.grad is not None:
                common.gradients[rank, spans[name]] = weight.grad.flatten()
        common.losses[rank], common.cpu[rank] = loss.item(), time.process_time()
        common.barrier.wait()
        for name, weight in part.items():
            weight.grad = common.gradients[:, spans[name]].mean(0).view_as(weight)
        optimiser.step(plan(step, recipe.steps, resumed=recipe.resume is not None))
        network.zero_grad(set_to_none=True)
        if rank == 0:
            progress.note(step, common, ids.numel() * workers)
        common.barrier.wait()


def _spans(network: Network) -> dict[str, slice]:
    """Return where the gradient of each weight lies in a flat row."""
    spans, start = {}, 0
    for name, weight in network.named_parameters():
        spans[name] = slice(start, start + weight.numel())
        start += weight.numel()
    return spans


class Progress:
    """Counts tokens and prints how far the run is, how fast, and at what price."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe, self.tokens, self.average = recipe, 0, 0.0
        self.started = time.perf_counter()

    def note(self, step: int, common: Common, tokens: int) -> None:
        """Count a finished step; print a line at every `report_every`-th."""
        loss = common.losses.mean().item()
        self.average = loss if step == 0 else 0.96 * self.average + 0.04 * loss
        self.tokens += tokens
        if step % self.recipe.report_every and step != self.recipe.steps - 1:
            return
        wall = time.perf_counter() - self.started
        print(
            f"step {step + 1}/{self.recipe.steps}  loss {self.average:.4f}  {self.tokens / 1e6:.2f} M tokens  "
            f"{self.tokens / wall:.0f} tokens/s  wall {wall / 60:.1f} min  cpu {common.cpu.sum().item() / 60:.1f} min",
            flush=True,
        )
