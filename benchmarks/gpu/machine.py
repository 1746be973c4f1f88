"""Part "machine": what it is, which versions run, and what it can do at all."""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
from typing import Any

import torch

from . import bundle
from .context import Context
from .yardsticks import copy_timing, matmul_timing

PACKAGES = ("torch", "transformers", "tokenizers", "huggingface_hub", "numpy", "pydantic", "cuda-core", "cuda-bindings")
QUERY = "name,driver_version,memory.total,power.limit,clocks.sm,clocks.mem,clocks.max.sm,clocks.max.mem,temperature.gpu"


def run(context: Context) -> None:
    """Facts first; they hold also where nothing runs."""
    for name, value in {**software(), **hardware(context.bench.device)}.items():
        context.fact(name, value)
    context.fact("nvidia-smi", smi())
    with context.guarded("the GPU can be used"):
        reason = unusable(context)
        context.check("the GPU can be used", not reason, reason)
    with context.guarded("copy bandwidth"):
        timing, moved = copy_timing(context.bench, context.tiny)
        context.measured(f"copy of {moved >> 21} MiB", timing, "ms", f"{moved / timing.median / 1e12:.3f} TB/s")
    with context.guarded("matrix product"):
        timing, operations = matmul_timing(context.bench, context.tiny)
        note = f"{operations / timing.median / 1e12:.0f} TFLOP/s"
        context.measured(f"bf16 product of matrices of {round((operations / 2) ** (1 / 3))}", timing, "ms", note)
    context.fact("nvidia-smi after work", smi())


def software() -> dict[str, Any]:
    """Versions of everything that matters, and the commit that was prepared or is checked out."""
    from yaie_cuda.compiler import nvrtc_version
    from yaie_cuda.errors import ToolMissingError

    try:
        nvrtc = ".".join(map(str, nvrtc_version()))
    except ToolMissingError as error:
        nvrtc = f"none: {error}"
    versions = {name: bundle.installed(name) for name in PACKAGES}
    versions |= {"python": platform.python_version(), "torch's CUDA": torch.version.cuda, "nvrtc": nvrtc}
    return {"versions": versions, "commit": commit()}


def commit() -> str:
    """The commit of this checkout; "" where nobody knows it."""
    try:
        done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=bundle.ROOT, capture_output=True, text=True, check=True)
        return done.stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        prepared = bundle.FOLDER / "prepared.json"
        return str(json.loads(prepared.read_text())["commit"]) if prepared.is_file() else ""


def hardware(device: torch.device) -> dict[str, Any]:
    """The GPU as torch sees it, or the CPU."""
    if device.type != "cuda":
        return {"gpu": f"none (emulated on {platform.machine()})"}
    found = torch.cuda.get_device_properties(device)
    return {
        "gpu": found.name,
        "compute capability": f"{found.major}.{found.minor}",
        "multiprocessors": found.multi_processor_count,
        "memory_bytes": found.total_memory,
        "l2_bytes": getattr(found, "L2_cache_size", None),
    }


def smi() -> dict[str, str]:
    """Driver, clocks and limits by `nvidia-smi`; empty where it does not answer."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return {}
    command = [tool, f"--query-gpu={QUERY}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    values = done.stdout.splitlines()[0].split(",") if done.stdout else []
    return dict(zip(QUERY.split(","), (value.strip() for value in values), strict=False))


def unusable(context: Context) -> str:
    """Why kernels cannot run here; "" when they can."""
    if context.bench.device.type != "cuda":
        return ""
    from yaie_cuda.device import unusable_reason

    return unusable_reason(context.bench.device.index or 0)
