"""`--prepare`: fills the folder that travels, with wheels and compiled kernels, and says how large it is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence

from . import bundle


def prepare(archs: Sequence[str], python: str) -> int:
    """Make build/gpu_check. 0 when all of it is there and small enough."""
    try:
        bundle.download_wheels(python)
    except subprocess.CalledProcessError as error:
        print(f"gpu_check: pip could not fetch the wheels (exit code {error.returncode})", file=sys.stderr)
        return 1
    failed = compile_for(archs)
    (bundle.FOLDER / "prepared.json").write_text(json.dumps({"commit": head(), "archs": list(archs), "python": python}))
    size = bundle.travelling_bytes()
    print(
        f"gpu_check: {bundle.FOLDER.relative_to(bundle.ROOT)} is ready; it and the checkout have {size / 2**20:.1f} MiB"
    )
    if size > bundle.MOST_BYTES:
        print(f"gpu_check: that is more than {bundle.MOST_BYTES / 2**20:.0f} MiB", file=sys.stderr)
    return 1 if failed or size > bundle.MOST_BYTES else 0


def compile_for(archs: Sequence[str]) -> int:
    """Compile all specialisations into the folder; how many failed. A machine with the same NVRTC finds them there."""
    os.environ["YAIE_CACHE_DIR"] = str(bundle.KERNELS)
    from yaie_cuda import catalog
    from yaie_cuda.compiler import compile_all

    reports = compile_all([(one, arch) for arch in archs for one in catalog.all_specialisations()])
    failed = [report for report in reports if not report.ok]
    for report in failed:
        print(f"gpu_check: {report.name} does not compile for {report.arch}: {report.log[:300]}", file=sys.stderr)
    print(f"gpu_check: {len(reports) - len(failed)} kernels compiled for {', '.join(archs)}")
    return len(failed)


def head() -> str:
    """The commit that is checked out."""
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=bundle.ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()
