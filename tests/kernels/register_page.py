"""docs/kernels.md: registers and shared memory of every kernel of the CI set. Written by compiling them."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from yaie_cuda.catalog import ARCHS, all_specialisations, ci_specialisations
from yaie_cuda.compiler import compile_all, nvrtc_version
from yaie_cuda.kernel import Specialisation
from yaie_cuda.report import CompileReport

PAGE = Path(__file__).resolve().parents[2] / "docs" / "kernels.md"
HEAD = """# Kernels

Written by `scripts/kernels`; `scripts/kernels --check` says whether it is stale. Do not edit.

Registers per thread, as NVRTC {version} gives them, and shared memory per block in bytes, static and dynamic. None of
these spills registers or uses a stack. CI compiles them for every arch and holds their registers to this table, with a
slack of 15 % and 8. An op can ask for {count} specialisations in all; `scripts/test --full` compiles those.

| kernel | threads | shared memory | {archs} |
|---|---:|---:|{columns}|
"""
_ROW = re.compile(r"^\| `(?P<name>[^`]+)` \| \d+ \| [^|]+ \| (?P<numbers>[\d |]+) \|$", re.MULTILINE)
_VERSION = re.compile(r"as NVRTC (\d+\.\d+) gives them")


def rows_of(page: str) -> dict[str, tuple[int, ...]]:
    """Registers per arch, by the kernel's label."""
    return {found["name"]: tuple(map(int, found["numbers"].split(" | "))) for found in _ROW.finditer(page)}


def row(one: Specialisation, reports: Sequence[CompileReport]) -> str:
    """One kernel in Markdown. Raises RuntimeError when it does not compile."""
    for report in reports:
        if not report.ok:
            raise RuntimeError(f"{report.name} does not compile for {report.arch}:\n{report.log}")
    shared = max(report.shared_bytes for report in reports)
    registers = " | ".join(str(report.registers) for report in reports)
    return f"| `{one.label}` | {one.threads} | {shared:,} | {registers} |"


def written() -> str:
    """The page as it ought to be."""
    chosen = ci_specialisations()
    reports = compile_all((one, arch) for one in chosen for arch in ARCHS)
    by_kernel = [reports[i : i + len(ARCHS)] for i in range(0, len(reports), len(ARCHS))]
    head = HEAD.format(
        version=".".join(map(str, nvrtc_version())),
        count=len(all_specialisations()),
        archs=" | ".join(ARCHS),
        columns="|".join("---:" for _ in ARCHS),
    )
    rows = [row(one, mine) for one, mine in zip(chosen, by_kernel, strict=True)]
    return head + "\n".join(rows) + "\n"


def stale(page: str, wanted: str) -> bool:
    """Whether the page must be written anew; another NVRTC counts other registers, then only the kernels must agree."""
    versions = [_VERSION.search(text) for text in (page, wanted)]
    if versions[0] and versions[1] and versions[0][1] != versions[1][1]:
        return list(rows_of(page)) != list(rows_of(wanted))
    return page != wanted


def main(arguments: list[str]) -> int:
    """Write the page, or say that it is stale."""
    if set(arguments) - {"--check"}:
        print(f"kernels: unknown option {arguments[0]} (there is only --check)", file=sys.stderr)
        return 2
    wanted = written()
    if "--check" not in arguments:
        PAGE.write_text(wanted, encoding="utf-8")
    elif not PAGE.exists() or stale(PAGE.read_text(encoding="utf-8"), wanted):
        print("docs/kernels.md is stale: run scripts/kernels", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
