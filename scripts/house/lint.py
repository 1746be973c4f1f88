"""Style, types, layers, sizes and generated pages: each check runs, then one verdict."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import time
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
    """Name and command of every check, cheapest first."""
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


def main(arguments: list[str]) -> int:
    """Run every check; print the output of those that fail and the seconds of all."""
    if set(arguments) - {"--fix"}:
        print(f"lint: unknown option {arguments[0]} (there is only --fix)", file=sys.stderr)
        return 2
    failed = []
    for name, command in checks(fix="--fix" in arguments):
        start = time.perf_counter()
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        verdict = "ok" if done.returncode == 0 else "FAILED"
        print(f"{name:<24}{verdict:<8}{time.perf_counter() - start:6.1f} s", flush=True)
        if done.returncode != 0 or name == "sizes":
            print(done.stdout + done.stderr, end="", flush=True)
        if done.returncode != 0:
            failed.append(name)
    if failed:
        print(f"lint: failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
