"""From a kernel's name to its source and what the compiler makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .listing import entry_of, own_arch
from .result import report_table
from .source import KernelSource, headers_of
from .table import Table

if TYPE_CHECKING:
    from yaie_cuda.kernel import Specialisation


def source_of(name: str, arch: str | None) -> KernelSource:
    """The source that kernel `name` is compiled from now, with a report on its usual specialisations."""
    from yaie_cuda import sources
    from yaie_cuda.catalog import ci_specialisations
    from yaie_cuda.kernel import SOURCES

    text = sources.text_of(name)
    usual = [each for each in ci_specialisations() if each.kernel.name == name]
    report, note = _report(usual[:1], arch or own_arch())
    return KernelSource(name, text, tuple(headers_of(text, SOURCES)), name in sources.replaced(), report, note)


def _report(specialisations: Sequence[Specialisation], arch: str) -> tuple[Table | None, str]:
    """What the compiler makes of them, or why it was not asked."""
    from yaie_cuda.compiler import compile_all
    from yaie_cuda.errors import ToolMissingError

    try:
        reports = compile_all([(each, arch) for each in specialisations])
    except ToolMissingError as error:
        return None, f"Not compiled for {arch}: {error}"
    return report_table([entry_of(each) for each in reports if each.ok]), ""
