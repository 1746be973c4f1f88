"""The header of a safetensors file, read without its data: names, dtypes, shapes, and whether they fit the file."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

from yaie_engine.errors import ModelLoadError

MOST_HEADER_BYTES = 100 * 2**20
MOST_DIMENSIONS = 16
"""A shape of a million large numbers would take minutes to multiply."""
BITS = {
    "F64": 64, "I64": 64, "U64": 64, "F32": 32, "I32": 32, "U32": 32, "F16": 16, "BF16": 16, "I16": 16, "U16": 16,
    "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "I8": 8, "U8": 8, "BOOL": 8, "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor of a file."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


def read_header(path: Path) -> dict[str, TensorInfo]:
    """Every tensor of `path`.

    Raises:
        ModelLoadError: the header is damaged or describes other data than the file holds.
    """
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > MOST_HEADER_BYTES or 8 + length > size:
                raise ModelLoadError(damaged(path, "its header is longer than the file"))
            content = json.loads(file.read(length))
    except OSError as error:
        raise ModelLoadError(f"{path.name} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ModelLoadError(damaged(path, "its header is no JSON")) from error
    if not isinstance(content, dict):
        raise ModelLoadError(damaged(path, "its header holds no JSON object"))
    return _tensors(path, content, size - 8 - length)


def _tensors(path: Path, content: dict[str, object], data_size: int) -> dict[str, TensorInfo]:
    found: dict[str, TensorInfo] = {}
    end = 0
    for name, entry in content.items():
        if name == "__metadata__":
            continue
        try:
            dtype, shape, (start, stop) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]  # type: ignore[index]
            info = TensorInfo(dtype, shape)
            sound = len(shape) <= MOST_DIMENSIONS
            sound = sound and all(type(count) is int and 0 <= count < 2**63 for count in (*shape, start, stop))
            sound = sound and start <= stop <= data_size and (stop - start) * 8 == info.numel * BITS[dtype]
        except (KeyError, TypeError, ValueError):
            sound = False
        if not sound:
            raise ModelLoadError(damaged(path, f"tensor {name[:80]!r} does not fit the file"))
        found[name] = info
        end = max(end, stop)
    if end != data_size:
        raise ModelLoadError(damaged(path, f"{data_size} bytes of data, the header describes {end}"))
    return found


def damaged(path: Path, why: str) -> str:
    """One line for a file that must not be read."""
    return f"{path.name} is damaged: {why}; download it again"
