"""How much memory there is, and how many KV blocks fit into it."""

from __future__ import annotations

import ctypes
import gc
import sys
from pathlib import Path

import psutil
import torch

from .config import EngineConfig
from .errors import ModelLoadError
from .kv_cache import KVLayout

CGROUP = Path("/sys/fs/cgroup")
MOST_CONTEXTS = 16
MOST_STATE_BYTES, STATE_SHARE = 2**30, 8


def free_memory(device: torch.device) -> int:
    """Bytes that can be allocated on `device` now; a container's own limit counts."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    free = int(psutil.virtual_memory().available)
    limit, used = _cgroup("memory.max"), _cgroup("memory.current")
    if limit is None or used is None:
        return free
    return max(0, min(free, limit - used + _reclaimable()))


def all_memory(device: torch.device) -> int:
    """Bytes that `device` has, used or not; a container's own limit counts."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[1])
    total = int(psutil.virtual_memory().total)
    limit = _cgroup("memory.max")
    return total if limit is None else min(total, limit)


def give_back(device: torch.device) -> None:
    """Hand memory that was let go of to the system: what is only garbage, and what allocators keep for later."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it
        if trim is not None:
            trim(0)


def _cgroup(name: str) -> int | None:
    """A number of the container's memory controller; None where there is no limit or no controller."""
    try:
        text = (CGROUP / name).read_text(encoding="utf-8").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _reclaimable() -> int:
    """Cached file pages count as used but are given up on demand."""
    try:
        lines = (CGROUP / "memory.stat").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("inactive_file ")), 0)


def choose_num_blocks(
    config: EngineConfig,
    layout: KVLayout,
    dtype: torch.dtype,
    device: torch.device,
    max_model_len: int,
    state_bytes: int = 0,
    step_bytes: int = 0,
    record_bytes: int = 0,
) -> int:
    """The number of KV blocks: what the configuration says, else what memory holds, at most 16 full contexts on CPU.

    `state_bytes` are kept per running sequence outside of the blocks; `step_bytes` are what the largest step takes, and
    `record_bytes` what recorded steps keep.

    Raises:
        ModelLoadError: they do not fit; the text says what is needed and the largest `num_blocks` that fits.
    """
    per_block = max(layout.bytes_per_token(dtype) * config.block_size, 1)
    budget = max(0, kv_room(config, device) - state_bytes * config.max_num_seqs - step_bytes - record_bytes)
    if config.num_blocks is not None:
        largest = free_memory(device) // per_block
        if config.num_blocks > largest:
            raise ModelLoadError(
                f"num_blocks={config.num_blocks} needs {gib(config.num_blocks * per_block)} of KV cache and "
                f"{gib(free_memory(device))} are free: the largest num_blocks that fits is {largest}"
            )
        return config.num_blocks
    most = -(-max_model_len * MOST_CONTEXTS // config.block_size)
    unbounded = device.type == "cuda" and layout.layers
    count = budget // per_block if unbounded else min(budget // per_block, most)
    if count < 1:
        option = "gpu_memory_utilization" if device.type == "cuda" else "cpu_memory_utilization"
        raise ModelLoadError(
            f"no memory for the KV cache: one block of {config.block_size} tokens needs {gib(per_block)}, "
            f"{gib(budget)} are allowed{_taken(device, step_bytes)}; free memory, raise {option}, or lower "
            f"{'max_num_batched_tokens' if step_bytes else 'block_size'}"
        )
    return int(min(count, 2**31 - 1))


def choose_state_bytes(config: EngineConfig) -> int:
    """How many bytes of RAM whole states of models of tier "state" may take: by default an eighth of what is free, up
    to 1 GiB."""
    if config.state_cache_gib is not None:
        return int(config.state_cache_gib * 2**30)
    return min(MOST_STATE_BYTES, free_memory(torch.device("cpu")) // STATE_SHARE)


def check_weights_fit(
    name: str, num_weights: int, dtype: torch.dtype, device: torch.device, empty: bool = False
) -> None:
    """Refuse weights that cannot fit; with `empty` only those that could not even if nothing else was in memory.

    Raises:
        ModelLoadError: more is needed than is there; the text says both.
    """
    needed, there = num_weights * dtype.itemsize, all_memory(device) if empty else free_memory(device)
    if needed > there:
        where = "on the GPU" if device.type == "cuda" else "of RAM"
        raise ModelLoadError(
            f"{name} needs {gib(needed)} for its weights in {str(dtype).removeprefix('torch.')}, {gib(there)} {where} "
            f"are {'all there is' if empty else 'free'}: take a smaller model, a smaller dtype, or free memory"
        )


def kv_room(config: EngineConfig, device: torch.device) -> int:
    """Bytes the KV cache may take: a share of free RAM, or what the engine's share of the GPU leaves."""
    free = free_memory(device)
    if device.type != "cuda":
        return int(free * config.cpu_memory_utilization)
    return max(0, free - int(all_memory(device) * (1 - config.gpu_memory_utilization)))


def _taken(device: torch.device, step_bytes: int) -> str:
    """Where the memory of a GPU went."""
    if not step_bytes:
        return ""
    free, total = free_memory(device), all_memory(device)
    return f" ({gib(total)} in all, {gib(total - free)} in use, {gib(step_bytes)} for the largest step)"


def gib(count: int) -> str:
    """Bytes for a person."""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"
