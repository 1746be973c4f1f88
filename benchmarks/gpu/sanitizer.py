"""Part "sanitizer": NVIDIA's compute-sanitizer over the small cases, its tools beside each other.

Cases are made and compared on the CPU, so that hardly any kernel but ours runs under the tool; every tensor is an
allocation of its own, so that the tool sees where it ends.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from .context import Context

TOOLS = ("memcheck", "racecheck", "synccheck")
PLACES = ("/usr/local/cuda/bin", "/opt/cuda/bin", "/usr/local/cuda/compute-sanitizer")
WRONG = 86
_SIGNS = ("Invalid", "Error: Race", "Warning: Race", "Barrier error", "Program hit", "ValueError")
_SUMMARY = re.compile(r"(ERROR|RACECHECK) SUMMARY: .*")


def run(context: Context) -> None:
    """All tools at once; each has the time of the part."""
    found = tool()
    if context.bench.device.type != "cuda" or found is None:
        why = "there is no GPU" if context.bench.device.type != "cuda" else "compute-sanitizer is not installed here"
        context.skip("compute-sanitizer", why)
        return
    running = {name: start(found, name) for name in TOOLS}
    for name, process in running.items():
        conclude(context, name, process)


def tool() -> str | None:
    """Where compute-sanitizer is."""
    return shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path=os.pathsep.join(PLACES))


def start(found: str, name: str) -> subprocess.Popen[str]:
    """One tool over `sanitized.py`."""
    command = [found, "--tool", name, "--error-exitcode", str(WRONG), "--print-limit", "5"]
    if name == "memcheck":  # PyTorch asks the driver for what it may not have, and lives with the answer
        command += ["--report-api-errors", "no"]
    command += [sys.executable, "-m", f"{__package__}.sanitized"]
    root = Path(__file__).resolve().parents[2]
    paths = [str(root / part) for part in ("", "engine", "cuda", "widgets")] + [os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.Popen(
        command, env=environment, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def conclude(context: Context, name: str, process: subprocess.Popen[str]) -> None:
    """What the tool said. One that cannot work on this machine is no fault of a kernel."""
    begun = time.monotonic()
    try:
        said, _ = process.communicate(timeout=max(1.0, context.left - 1))
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        context.skip(f"compute-sanitizer {name}", f"not through after {time.monotonic() - begun:.0f} s")
        return
    print(said, flush=True)
    verdict(context, name, process.returncode, said)


def verdict(context: Context, name: str, code: int, said: str) -> None:
    """From exit code and text to a finding."""
    lines = [line.strip("= \t") for line in said.splitlines()]
    summary = next((found[0] for line in lines if (found := _SUMMARY.search(line))), "")
    cases = next((line for line in lines if line.startswith("ran ")), "")
    refused = next((line for line in lines if "not supported" in line or "Unable to" in line), "")
    if code == 0 and cases:
        context.check(f"compute-sanitizer {name}", True, f"{cases}; {summary}")
    elif refused and not cases:
        context.skip(f"compute-sanitizer {name}", refused[:200])
    else:
        first = next((line for line in lines if line.startswith(_SIGNS)), lines[-1] if lines else "it printed nothing")
        context.check(f"compute-sanitizer {name}", False, f"exit code {code}: {summary} {first}"[:300])
