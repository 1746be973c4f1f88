"""Decode steps as graphs: captured once per batch size, then replayed over inputs at fixed addresses.

A replay of a CUDA graph costs one launch instead of one per operation, one on a CPU none of the model's Python.
Everything that changes from step to step lies in tensors: token ids, positions, slots, block tables, context lengths.
On a GPU batches are padded to the next captured size. On a CPU a padded row costs what any row costs, so each of the
small sizes is captured by itself, when it is first needed, larger ones by twos and fours, when they come several times.

Decodes that share prefixes are captured as well, per batch size and number of groups. Run eagerly, a cascade would save
microseconds a layer and lose milliseconds a step, since a forward launched from Python takes longer than a replay.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor

from yaie_cuda.cpu.recording import MovedError

from .backends.cascade import Groups, groups_needed, padded
from .batch import FlatBatch, Staged
from .device_errors import out_of_memory
from .upload import stage

logger = logging.getLogger("yaie")
WARM_UPS = 2
USUAL_GROUPS = 4
"""Groups of the cascades that are captured at load: up to three prefixes, and a group of those that share nothing."""
SIZES_ON_CPU = (*range(1, 17), *range(18, 33, 2), *range(36, 65, 4))
"""The batch sizes that are captured on a CPU (`record_memory.py` says what they keep)."""
AT_ONCE = 16
"""The largest of them that is captured when it is first needed."""
PATIENCE = 8
"""Steps that ask for more groups, or for a larger size on a CPU, before these are captured: a capture takes as long as
several steps."""

Replay = Callable[[], None]
Capture = Callable[[Callable[[], Tensor]], tuple[Tensor, Replay]]
"""Runs a function once while recording it; gives its result, and what runs the recording again into that result."""


class DecodeInputs:
    """The inputs of `rows` decodes, at fixed addresses.

    `tokens` int64 [3, rows]: ids, positions, slots; `contexts` int32 [rows]; `tables` int32 [rows, width]. A row that
    stands for no sequence has slot -1 and context 0: it writes nothing and attends to nothing. With `num_groups`, a
    cascade: `groups` says who shares what.
    """

    def __init__(self, rows: int, width: int, device: torch.device, num_groups: int = 0) -> None:
        self.rows, self.device = rows, device
        self.tokens = torch.zeros(3, rows, dtype=torch.int64, device=device)
        self.tokens[2].fill_(-1)
        self.contexts = torch.zeros(rows, dtype=torch.int32, device=device)
        self.tables = torch.zeros(rows, width, dtype=torch.int32, device=device)
        self.groups = Groups.room(num_groups, rows, device) if num_groups else None

    @property
    def input_ids(self) -> Tensor:
        return self.tokens[0:1]

    @property
    def position_ids(self) -> Tensor:
        return self.tokens[1:2]

    @property
    def slots(self) -> Tensor:
        return self.tokens[2]

    def vary(self, context: int) -> None:
        """Ids and positions that differ by row, each with so much context in block 0; nothing is written."""
        rows, width = torch.arange(1, self.rows + 1, device=self.device), self.tables.shape[1]
        self.tokens[0], self.tokens[1] = rows + context, (7 * rows + width // 2) % width
        self.tokens[2].fill_(-1)
        self.contexts.fill_(context)

    def refresh(self, batch: FlatBatch) -> None:
        """Take over a batch of at most `rows` decodes. Only queues copies."""
        staged = batch.staged or Staged.of(batch, self.rows)
        staged.tokens[0, : batch.num_tokens] = torch.tensor(batch.ids)
        count, width = staged.tables.shape
        self.tokens.copy_(staged.tokens, non_blocking=True)
        self.contexts.copy_(staged.contexts, non_blocking=True)
        self.tables[:count, :width].copy_(staged.tables, non_blocking=True)
        if self.groups is not None and batch.sharing is not None:
            flat = padded(batch.sharing, self.groups.num_groups, self.rows)
            self.groups.flat.copy_(stage(flat, torch.int32, self.device), non_blocking=True)


class CaptureError(RuntimeError):
    """What was captured does not do what the model does."""


@dataclass(frozen=True, slots=True)
class Graph:
    """One captured batch size; `logits` [rows, vocab] is what the last replay gave."""

    inputs: DecodeInputs
    logits: Tensor
    replay: Replay


class DecodeGraphs:
    """The graphs of one model: one per bucket, captured by `prepare` or when it is first needed.

    `remark` says what was given up, and why; "" while nothing was.

    `forward` computes the logits [rows, vocab] of `DecodeInputs`. If a capture fails, one warning says why and every
    step runs eagerly from then on. On a CPU each is replayed over other inputs before it is used, and fails if it does
    not give what `forward` gives: nothing else would tell that a model read numbers beside torch. `prepare` also
    captures cascades of few groups, for the buckets in which one can be worth it. Others are captured when they have
    been asked for several times; until then, and if that fails, such batches are replayed as plain decodes.
    """

    def __init__(
        self,
        forward: Callable[[DecodeInputs], Tensor],
        capture: Capture,
        max_num_seqs: int,
        width: int,
        device: torch.device,
        cascades: Callable[[int], bool] = lambda rows: False,
        on_cpu: bool = False,
    ) -> None:
        """`width`: blocks of the longest sequence; `cascades` says whether one can be worth it with so many rows."""
        self.buckets = cpu_buckets(max_num_seqs) if on_cpu else buckets(max_num_seqs)
        self._at_load = self.buckets[:1] if on_cpu else self.buckets
        self._on_cpu = on_cpu
        self.failure = self.cascade_failure = self.remark = ""
        self._forward, self._capture, self._width, self._device = forward, capture, width, device
        self._worth_cascading = cascades
        self._graphs: dict[int, Graph] = {}
        self._cascades: dict[tuple[int, int], Graph] = {}
        self._asked: Counter[tuple[int, int]] = Counter()
        self._came: Counter[int] = Counter()

    def prepare(self) -> None:
        """Capture every bucket, and its usual cascade, the largest first: the smaller ones then reuse its memory.

        On a CPU only one row.
        """
        for rows in reversed(self._at_load):
            if self._graph(rows) is None:
                return
        for rows in reversed(self._at_load):
            worth = rows >= USUAL_GROUPS and self._worth_cascading(rows)
            if worth and self._capture_cascade(self._graphs[rows], USUAL_GROUPS) is None:
                return

    def run(self, batch: FlatBatch) -> Tensor | None:
        """Logits [batch.num_tokens, vocab] of a batch of decodes, valid until the next run; None: run it eagerly."""
        rows = self._rows(batch.num_tokens)
        graph = self._graph(rows) if rows and not self.failure and self._due(rows) else None
        if graph is None:
            return None
        if batch.sharing is not None:
            graph = self._cascade(graph, groups_needed(batch.sharing, rows)) or graph
        graph.inputs.refresh(batch)
        return graph.logits[: batch.num_tokens] if self._replayed(graph) else None

    def ready(self, num_decodes: int) -> bool:
        """Whether so many are replayed, with no capture before it: there is a graph, and no cascade is due."""
        rows = self._rows(num_decodes)
        asked = [key for key, times in self._asked.items() if key[0] == rows and times >= PATIENCE - 1]
        due = not self.cascade_failure and any(not self._fitting(*key) for key in asked)
        return rows in self._graphs and not due

    def stage(self, batch: FlatBatch) -> None:
        """Make ready on the host what `run` copies to the device, but for the token ids."""
        if rows := self._rows(batch.num_tokens):
            batch.staged = Staged.of(batch, rows)

    def drop(self) -> None:
        """Forget what was captured: kernels or tensors have changed. The next steps capture anew."""
        self._graphs.clear()
        self._cascades.clear()
        self.failure = self.cascade_failure = self.remark = ""

    @property
    def captured(self) -> list[int]:
        """The batch sizes for which there is a graph."""
        return sorted(self._graphs)

    @property
    def cascades(self) -> list[tuple[int, int]]:
        """The (batch size, number of groups) for which there is a cascade."""
        return sorted(self._cascades)

    def _rows(self, num_decodes: int) -> int:
        """The batch size that is replayed; 0: there are too many."""
        return next((size for size in self.buckets if size >= num_decodes), 0)

    def _due(self, rows: int) -> bool:
        """Whether so many rows are captured, or shall be now."""
        if rows in self._graphs or not self._on_cpu or rows <= AT_ONCE:
            return True
        self._came[rows] += 1
        return self._came[rows] >= PATIENCE

    def _graph(self, rows: int) -> Graph | None:
        if rows not in self._graphs:
            inputs = DecodeInputs(rows, self._width, self._device)
            try:
                graph = Graph(inputs, *self._capture(lambda: self._forward(inputs)))
                if self._on_cpu:
                    self._check(graph)
            except Exception as error:  # whatever a model does that cannot be captured
                if self._on_cpu and out_of_memory(error):  # it may be there again in the next step
                    return None
                self._give_up(f"the capture of {rows} rows", error)
                return None
            self._graphs[rows] = graph
        return self._graphs[rows]

    def _replayed(self, graph: Graph) -> bool:
        """Replay. Where that fails on a CPU the step can be run eagerly all the same: it writes the same slots."""
        try:
            graph.replay()
        except MovedError:  # somebody gave the model other weights
            self.drop()
            return False
        except Exception as error:
            if not self._on_cpu:
                raise
            if out_of_memory(error):  # an eager step that finds none is cut
                return False
            self._give_up(f"a replay of {graph.inputs.rows} rows", error)
            return False
        return True

    def _give_up(self, what: str, error: Exception) -> None:
        self._graphs.clear()
        self._cascades.clear()
        self.failure = _text(error)
        self._warn(f"decodes run without graphs: {what} failed: {self.failure}")

    def _warn(self, remark: str) -> None:
        """Now, and to whoever asks later."""
        self.remark = remark
        logger.warning("%s", remark)

    def _check(self, graph: Graph) -> None:
        """Raise CaptureError unless a replay over other inputs, which write nothing, gives what `forward` gives.

        First without a look at the cache: NaN in its blocks would hide all else.
        """
        for context in (0, 1):
            graph.inputs.vary(context)
            graph.replay()
            replayed = graph.logits.clone()
            if not torch.equal(replayed.view(torch.uint8), self._forward(graph.inputs).view(torch.uint8)):
                raise CaptureError("it gives other logits for other inputs than the model does")

    def _cascade(self, plain: Graph, num_groups: int) -> Graph | None:
        """The graph of so many rows and at least so many groups, if there is one or it is time to capture it."""
        rows = plain.inputs.rows
        if fitting := self._fitting(rows, num_groups):
            return self._cascades[min(fitting)]
        key = rows, 1 << (num_groups - 1).bit_length()
        self._asked[key] += 1
        if self.cascade_failure or self._asked[key] < PATIENCE:
            return None
        return self._capture_cascade(plain, key[1])

    def _fitting(self, rows: int, num_groups: int) -> list[tuple[int, int]]:
        """The cascades of so many rows and at least so many groups."""
        return [key for key in self._cascades if key[0] == rows and key[1] >= num_groups]

    def _capture_cascade(self, plain: Graph, num_groups: int) -> Graph | None:
        """It writes its logits where the plain one does, so that it takes no memory of its own for them."""
        key = plain.inputs.rows, num_groups
        inputs = DecodeInputs(key[0], self._width, self._device, num_groups)
        try:
            _, replay = self._capture(lambda: plain.logits.copy_(self._forward(inputs)))
        except Exception as error:
            self.cascade_failure = _text(error)
            self._warn(f"shared prefixes are read by each decode: the capture of {key} failed: {_text(error)}")
            return None
        self._cascades[key] = Graph(inputs, plain.logits, replay)
        return self._cascades[key]


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:160]}"


def cpu_buckets(most: int) -> tuple[int, ...]:
    """The batch sizes to capture on a CPU, up to `most`, and `most` where it is not beyond them all."""
    most = min(most, SIZES_ON_CPU[-1])
    return (*(size for size in SIZES_ON_CPU if size < most), most)


def buckets(most: int) -> tuple[int, ...]:
    """The batch sizes to capture: powers of two below `most`, and `most`."""
    sizes = [1 << power for power in range(most.bit_length()) if 1 << power < most]
    return (*sizes, most)


class CudaCapture:
    """Captures with `torch.cuda.graph`; all graphs share one memory pool, so they may not run at the same time.

    A pool lives as long as a graph that uses it: once all were dropped, the next one begins a new pool.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)
        self._alive: WeakSet[Any] = WeakSet()

    def __call__(self, run: Callable[[], Tensor]) -> tuple[Tensor, Replay]:
        """Run a few times first: modules are loaded, workspaces have grown and libraries have chosen by then."""
        current = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            for _ in range(WARM_UPS):
                run()
        current.wait_stream(self._stream)
        graph = torch.cuda.CUDAGraph()
        pool = next((other.pool() for other in self._alive), None)
        # Other threads of a notebook may use the GPU meanwhile: only this one is watched for what cannot be captured.
        capture = torch.cuda.graph(graph, pool=pool, stream=self._stream, capture_error_mode="thread_local")
        with torch.cuda.stream(current), capture:  # a capture that fails does not go back to it by itself
            logits = run()
        self._alive.add(graph)
        return logits, graph.replay
