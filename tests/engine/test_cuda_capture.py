"""The capture of CUDA graphs, on a torch.cuda that only keeps account: whose stream is current, which pool is used."""

from __future__ import annotations

import gc
from contextlib import AbstractContextManager, contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.engine.test_graphs import decode_batch
from yaie_engine.graphs import CudaCapture, DecodeGraphs

CPU = torch.device("cpu")


class Cuda:
    """What a capture uses of torch.cuda. `fails` names where the next one fails: begin, run or end.

    As in torch, a capture that does not begin or end well leaves its stream current.
    """

    def __init__(self) -> None:
        self.main = self.current = SimpleNamespace(wait_stream=lambda other: None, name="main")
        self.fails = ""
        self.pools: list[Any] = []
        self.live: dict[Any, int] = {}
        self.made = 0
        cuda = self

        class Graph:
            key: Any = None

            def pool(self) -> Any:
                return self.key

            def replay(self) -> None:
                """Nothing to do."""

            def __del__(self) -> None:
                if self.key is not None:
                    cuda.live[self.key] -= 1

        self.Graph = Graph

    def stream(self, stream: Any) -> AbstractContextManager[None]:
        @contextmanager
        def switched() -> Any:
            before, self.current = self.current, stream
            try:
                yield
            finally:
                self.current = before

        return switched()

    def graph(self, graph: Any, pool: Any, stream: Any, capture_error_mode: str) -> AbstractContextManager[None]:
        @contextmanager
        def capturing() -> Any:
            assert pool is None or self.live[pool], "a pool without a live graph cannot be used again"
            before, self.current = self.current, stream
            self._maybe("begin")
            yield
            self._maybe("end")
            self.current = before
            self.made += 1
            graph.key = pool or self.made
            self.live[graph.key] = self.live.get(graph.key, 0) + 1
            self.pools.append(graph.key)

        return capturing()

    def forward(self, inputs: Any) -> torch.Tensor:
        if self.current is not self.main and self.fails == "run":
            raise RuntimeError("planted at run")
        return torch.zeros(inputs.rows, 3)

    def _maybe(self, where: str) -> None:
        if self.fails == where:
            raise RuntimeError(f"planted at {where}")


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    fake = Cuda()
    side = SimpleNamespace(wait_stream=lambda other: None, name="side")
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: side)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: fake.current)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", fake.Graph)
    monkeypatch.setattr(torch.cuda, "stream", fake.stream)
    monkeypatch.setattr(torch.cuda, "graph", fake.graph)
    return fake


def graphs_on(cuda: Cuda) -> DecodeGraphs:
    return DecodeGraphs(cuda.forward, CudaCapture(CPU), 4, 8, CPU)


@pytest.mark.parametrize("where", ["begin", "run", "end"])
def test_a_capture_that_fails_leaves_the_thread_on_its_own_stream(cuda: Cuda, where: str) -> None:
    graphs = graphs_on(cuda)
    cuda.fails = where
    graphs.prepare()
    assert graphs.failure == f"RuntimeError: planted at {where}"
    assert cuda.current is cuda.main
    cuda.fails = ""
    graphs.drop()  # the next steps capture anew
    assert graphs.run(decode_batch([4])) is not None and graphs.captured == [1]
    assert cuda.current is cuda.main


def test_graphs_share_a_pool_until_they_are_dropped(cuda: Cuda) -> None:
    graphs = graphs_on(cuda)
    for generation in (1, 2, 3):
        graphs.prepare()
        assert graphs.captured == [1, 2, 4]
        assert len(set(cuda.pools)) == generation
        graphs.drop()
        gc.collect()
        assert not any(cuda.live.values())
    assert len(cuda.pools) == 9


def test_a_capture_that_fails_after_others_does_not_spoil_the_next_pool(cuda: Cuda) -> None:
    graphs = graphs_on(cuda)
    assert graphs.run(decode_batch([4])) is not None
    cuda.fails = "end"
    assert graphs.run(decode_batch([4, 5])) is None and graphs.captured == []
    cuda.fails = ""
    graphs.drop()
    gc.collect()
    assert graphs.run(decode_batch([4])) is not None and len(set(cuda.pools)) == 2
