"""Tensors of a device set aside in host memory: their storages are emptied and filled again, in place.

Whoever holds one of the tensors, a view of it or a closure over it holds the same storage, so nothing has to be found
and exchanged. Addresses differ afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor


class HostCopy:
    """A copy of everything behind `tensors`, each storage once. The tensors themselves are as before until `release`.

    Raises:
        RuntimeError, MemoryError: the host has no memory for it.
    """

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        found = {storage.data_ptr(): storage for tensor in tensors if (storage := tensor.untyped_storage()).nbytes()}
        self._parts = [(storage, _bytes(storage).to("cpu", copy=True)) for storage in found.values()]

    @property
    def nbytes(self) -> int:
        return sum(host.nbytes for _, host in self._parts)

    def release(self) -> None:
        """Free the device's memory; the tensors may not be read until `restore`."""
        for storage, _ in self._parts:
            storage.resize_(0)

    def restore(self) -> None:
        """Fill the tensors again; the copy stays.

        Raises:
            RuntimeError: the device has no memory for it (torch.OutOfMemoryError is one). Nothing of it is taken.
        """
        try:
            for storage, host in self._parts:
                storage.resize_(host.nbytes)
                _bytes(storage).copy_(host)
        except RuntimeError:
            self.release()
            raise


def _bytes(storage: torch.UntypedStorage) -> Tensor:
    """A storage as uint8 [nbytes]."""
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
