"""Tensors set aside in host memory: in place, each storage once, and all or nothing."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from yaie_engine.host_copy import HostCopy


def test_views_ties_and_closures_see_everything_back() -> None:
    joined = torch.arange(24.0).reshape(4, 6)
    upper, lower = joined.chunk(2)
    tied = nn.Parameter(joined)
    before = joined.clone()

    def read() -> torch.Tensor:
        return joined * 1

    copy = HostCopy([upper, lower, tied, joined.t()])
    assert copy.nbytes == joined.untyped_storage().nbytes() == 96
    assert torch.equal(read(), before), "nothing is released yet"
    copy.release()
    assert joined.untyped_storage().nbytes() == upper.untyped_storage().nbytes() == 0
    copy.restore()
    assert torch.equal(read(), before) and torch.equal(lower, before[2:]) and torch.equal(tied, before)
    copy.release()
    copy.restore()
    assert torch.equal(read(), before), "the copy stays until it is dropped"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.int8, torch.bool])
def test_any_dtype_is_kept_bit_for_bit(dtype: torch.dtype) -> None:
    values = (torch.randn(1000) * 100).to(dtype)
    values.view(torch.uint8)[:4] = 255  # NaN where there is one
    expected = values.view(torch.uint8).tolist()
    copy = HostCopy([values, torch.empty(0)])
    copy.release()
    copy.restore()
    assert values.view(torch.uint8).tolist() == expected


def test_without_memory_nothing_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = [torch.full((100,), float(i)) for i in range(3)]
    copy = HostCopy(tensors)
    copy.release()
    resize, calls = torch.UntypedStorage.resize_, []

    def full(storage: torch.UntypedStorage, size: int) -> object:
        calls.append(size)
        if size and len([each for each in calls if each]) == 3:
            raise torch.OutOfMemoryError("no memory")
        return resize(storage, size)

    with monkeypatch.context() as patch:
        patch.setattr(torch.UntypedStorage, "resize_", full)
        with pytest.raises(torch.OutOfMemoryError):
            copy.restore()
    assert [tensor.untyped_storage().nbytes() for tensor in tensors] == [0, 0, 0]
    copy.restore()
    assert [tensor.unique().tolist() for tensor in tensors] == [[0.0], [1.0], [2.0]]
