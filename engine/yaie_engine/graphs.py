"""Decode steps as CUDA graphs: captured once per batch size, then replayed over inputs at fixed addresses.

A replay costs one launch instead of one per operation. Everything that changes from step to step lies in device
tensors: token ids, positions, slots, block tables, context lengths. Batches are padded to the next captured size.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .batch import FlatBatch
from .upload import stage

logger = logging.getLogger("yaie")
WARM_UPS = 2

Replay = Callable[[], None]
Capture = Callable[[Callable[[], Tensor]], tuple[Tensor, Replay]]
"""Runs a function once while recording it; gives its result, and what runs the recording again into that result."""


class DecodeInputs:
    """The inputs of `rows` decodes, at fixed addresses.

    `tokens` int64 [3, rows]: ids, positions, slots; `contexts` int32 [rows]; `tables` int32 [rows, width]. A row that
    stands for no sequence has slot -1 and context 0: it writes nothing and attends to nothing.
    """

    def __init__(self, rows: int, width: int, device: torch.device) -> None:
        self.rows, self.device = rows, device
        self.tokens = torch.zeros(3, rows, dtype=torch.int64, device=device)
        self.tokens[2].fill_(-1)
        self.contexts = torch.zeros(rows, dtype=torch.int32, device=device)
        self.tables = torch.zeros(rows, width, dtype=torch.int32, device=device)

    @property
    def input_ids(self) -> Tensor:
        return self.tokens[0:1]

    @property
    def position_ids(self) -> Tensor:
        return self.tokens[1:2]

    @property
    def slots(self) -> Tensor:
        return self.tokens[2]

    def refresh(self, batch: FlatBatch) -> None:
        """Take over a batch of at most `rows` decodes. Only queues copies."""
        count, width = batch.num_tokens, len(batch.tables[0])
        rest = [0] * (self.rows - count)
        tokens = [batch.ids + rest, batch.positions + rest, batch.slots + [-1] * len(rest)]
        self.tokens.copy_(stage(tokens, torch.int64, self.device), non_blocking=True)
        self.contexts.copy_(stage(batch.contexts + rest, torch.int32, self.device), non_blocking=True)
        self.tables[:count, :width].copy_(stage(batch.tables, torch.int32, self.device), non_blocking=True)


@dataclass(frozen=True, slots=True)
class Graph:
    """One captured batch size; `logits` [rows, vocab] is what the last replay gave."""

    inputs: DecodeInputs
    logits: Tensor
    replay: Replay


class DecodeGraphs:
    """The graphs of one model: one per bucket, captured when it is first needed or by `prepare`.

    `forward` computes the logits [rows, vocab] of `DecodeInputs`. If a capture fails, one warning says why and every
    step runs eagerly from then on.
    """

    def __init__(
        self,
        forward: Callable[[DecodeInputs], Tensor],
        capture: Capture,
        max_num_seqs: int,
        width: int,
        device: torch.device,
    ) -> None:
        """`width`: blocks of the longest sequence."""
        self.buckets = buckets(max_num_seqs)
        self.failure = ""
        self._forward, self._capture, self._width, self._device = forward, capture, width, device
        self._graphs: dict[int, Graph] = {}

    def prepare(self) -> None:
        """Capture every bucket, the largest first: the smaller ones then reuse its memory."""
        for rows in reversed(self.buckets):
            if self._graph(rows) is None:
                return

    def run(self, batch: FlatBatch) -> Tensor | None:
        """Logits [batch.num_tokens, vocab] of a batch of decodes, valid until the next run; None: run it eagerly."""
        rows = next((size for size in self.buckets if size >= batch.num_tokens), 0)
        graph = self._graph(rows) if rows and not self.failure else None
        if graph is None:
            return None
        graph.inputs.refresh(batch)
        graph.replay()
        return graph.logits[: batch.num_tokens]

    def drop(self) -> None:
        """Forget what was captured: kernels or tensors have changed. The next steps capture anew."""
        self._graphs.clear()
        self.failure = ""

    @property
    def captured(self) -> list[int]:
        """The batch sizes for which there is a graph."""
        return sorted(self._graphs)

    def _graph(self, rows: int) -> Graph | None:
        if rows not in self._graphs:
            inputs = DecodeInputs(rows, self._width, self._device)
            try:
                logits, replay = self._capture(lambda: self._forward(inputs))
            except Exception as error:  # whatever a model does that cannot be captured
                self._graphs.clear()
                self.failure = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:160]}"
                logger.warning("decodes run without CUDA graphs: the capture of %d rows failed: %s", rows, self.failure)
                return None
            self._graphs[rows] = Graph(inputs, logits, replay)
        return self._graphs[rows]


def buckets(most: int) -> tuple[int, ...]:
    """The batch sizes to capture: powers of two below `most`, and `most`."""
    sizes = [1 << power for power in range(most.bit_length()) if 1 << power < most]
    return (*sizes, most)


class CudaCapture:
    """Captures with `torch.cuda.graph`; all graphs share one memory pool, so they may not run at the same time."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)
        self._pool: Any = None

    def __call__(self, run: Callable[[], Tensor]) -> tuple[Tensor, Replay]:
        """Run a few times first: modules are loaded, workspaces have grown and libraries have chosen by then."""
        current = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            for _ in range(WARM_UPS):
                run()
        current.wait_stream(self._stream)
        graph = torch.cuda.CUDAGraph()
        # Other threads of a notebook may use the GPU meanwhile: only this one is watched for what cannot be captured.
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
            logits = run()
        self._pool = self._pool or graph.pool()
        return logits, graph.replay
