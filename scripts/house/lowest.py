"""The lowest transformers that pyproject.toml allows, beside the environment: build/lowest, put first on PYTHONPATH.

Only what differs is installed there, without what it needs: the environment has the rest. That version of transformers
wants huggingface_hub below 2, so the last of those goes with it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "lowest"
LOWEST = {"transformers": "5.17.0", "huggingface_hub": "1.33.0"}


def install() -> None:
    """Fill the folder, unless it is full. Raises subprocess.CalledProcessError when pip cannot."""
    wanted = [f"{name}=={version}" for name, version in LOWEST.items()]
    stamp = FOLDER / "installed"
    if stamp.is_file() and stamp.read_text(encoding="utf-8").split() == wanted:
        return
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps"]
    subprocess.run([*pip, "--no-compile", "--upgrade", "--target", str(FOLDER), *wanted], check=True)
    stamp.write_text("\n".join(wanted), encoding="utf-8")


def main() -> int:
    """Install, and see that a Python with the folder on its path imports just these."""
    install()
    code = "import transformers, huggingface_hub; print(transformers.__version__, huggingface_hub.__version__)"
    environment = {**os.environ, "PYTHONPATH": str(FOLDER)}
    command = [sys.executable, "-c", code]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()
    print(f"lowest: transformers {found[0]} with huggingface_hub {found[1]}")
    return 0 if found == list(LOWEST.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
