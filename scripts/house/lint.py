"""Style, types, layers, sizes and generated pages: each check runs, then one verdict."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sysconfig.get_path("scripts"))


def generated_page_checks(fix: bool) -> list[tuple[str, list[str]]]:
    """Each program that writes a page into docs/; with --check it only says whether the page is stale."""
    structure = [sys.executable, str(ROOT / "scripts" / "house" / "structure.py")]
    pages = {"structure": structure} | {
        name: [str(ROOT / "scripts" / name)] for name in ("architectures", "performance", "reliability")
    }
    check = [] if fix else ["--check"]
    return [(f"docs ({name})", [*command, *check]) for name, command in pages.items() if Path(command[-1]).exists()]


def kernel_sources() -> list[str]:
    """The C++ of the kernels and of their emulator."""
    folder = ROOT / "cuda" / "yaie_cuda"
    paths = (path for part in ("kernels", "emulator") for path in (folder / part).iterdir())
    return sorted(str(path) for path in paths if path.suffix in (".cu", ".cuh", ".cpp", ".hpp"))


def checks(fix: bool) -> list[tuple[str, list[str]]]:
    """Name and command of every check, those that change files in the order in which they must."""
    ruff = str(BIN / "ruff")
    return [
        ("ruff check", [ruff, "check", *(["--fix"] if fix else []), "."]),
        ("ruff format", [ruff, "format", *([] if fix else ["--check"]), "."]),
        (
            "clang-format",
            [str(BIN / "clang-format"), *(["-i"] if fix else ["--dry-run", "-Werror"]), *kernel_sources()],
        ),
        ("clang-tidy", [sys.executable, str(ROOT / "scripts" / "house" / "tidy.py")]),
        ("sizes", [sys.executable, str(ROOT / "scripts" / "house" / "size.py")]),
        ("layers", [str(BIN / "lint-imports"), "--no-cache"]),
        ("types", [str(BIN / "mypy")]),
        *generated_page_checks(fix),
    ]


def run_check(command: list[str]) -> tuple[int, str, float]:
    """Exit code, output and seconds of one check."""
    start = time.perf_counter()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr, time.perf_counter() - start


def main(arguments: list[str]) -> int:
    """Run every check, side by side when none changes a file; print the output of those that fail and all seconds."""
    if set(arguments) - {"--fix"}:
        print(f"lint: unknown option {arguments[0]} (there is only --fix)", file=sys.stderr)
        return 2
    fix = "--fix" in arguments
    names, commands = zip(*checks(fix), strict=True)
    failed = []
    with ThreadPoolExecutor(1 if fix else os.cpu_count() or 1) as pool:
        for name, (code, output, seconds) in zip(names, pool.map(run_check, commands), strict=True):
            print(f"{name:<24}{'ok' if code == 0 else 'FAILED':<8}{seconds:6.1f} s", flush=True)
            if code != 0 or name == "sizes":
                print(output, end="", flush=True)
            if code != 0:
                failed.append(name)
    if failed:
        print(f"lint: failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
