"""Numbers from Python to a device: the tensors that torch would make of them, several times as fast."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

from yaie_engine.upload import stage, upload

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([[0, 5, 2**31 - 1], [-1, 7, 8]], torch.int32),
        ([-(2**63), 2**63 - 1, -1], torch.int64),
        ([[[1], [2]], [[3], [4]]], torch.int64),
        ([0.1, 1e-30, 3, 1e30], torch.float32),
        ([(1, 2), (3, 4)], torch.int64),
        ([], torch.int32),
        ([[], []], torch.int32),
    ],
)
@pytest.mark.parametrize("make", [stage, upload])
def test_the_tensor_is_the_one_torch_makes(make: Callable[..., torch.Tensor], values: Any, dtype: torch.dtype) -> None:
    found = make(values, dtype, CPU)
    torch.testing.assert_close(found, torch.tensor(values, dtype=dtype), rtol=0, atol=0)


def test_rows_of_several_lengths_are_an_error() -> None:
    with pytest.raises(ValueError):
        stage([[1, 2], [3]], torch.int32, CPU)


def test_memory_for_a_gpu_is_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    pinned: list[torch.Tensor] = []

    def pin(tensor: torch.Tensor) -> torch.Tensor:
        pinned.append(tensor)
        return tensor

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
    assert stage([1, 2], torch.int64, torch.device("cuda", 0)) is pinned[0]
    stage([1, 2], torch.int64, CPU)
    assert len(pinned) == 1


def test_block_tables_of_a_large_batch_are_read_faster_than_torch_reads_them() -> None:
    tables = [list(range(row, row + 1024)) for row in range(128)]

    def least(make: Callable[[], torch.Tensor]) -> float:
        times = []
        for _ in range(7):
            start = time.perf_counter()
            make()
            times.append(time.perf_counter() - start)
        return min(times)

    torch_ms = least(lambda: torch.tensor(tables, dtype=torch.int32))
    assert least(lambda: stage(tables, torch.int32, CPU)) < torch_ms / 1.5
