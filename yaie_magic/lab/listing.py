"""The catalogue of kernels, compiled: what `yaie kernels` and `%yaie kernels` list."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from yaie_magic.options import UsageProblem
from yaie_magic.render import static_mode

from .options import ARCHITECTURES, USUAL_ARCH, kernel_names, near
from .table import Column, Table

if TYPE_CHECKING:
    from yaie_cuda.kernel import Specialisation
    from yaie_cuda.report import CompileReport

FIELDS = (
    "name",
    "arch",
    "registers",
    "shared_bytes",
    "spill_bytes",
    "cubin_bytes",
    "compile_ms",
    "cached",
    "ok",
    "log",
)
Progress = Callable[[int, int, str], None]


def chosen(names: Sequence[str], everything: bool = False) -> tuple[Specialisation, ...]:
    """The specialisations of the named kernels, or of all; a name may be a label, too.

    Raises:
        UsageProblem: a name is no kernel's.
    """
    from yaie_cuda.catalog import all_specialisations, ci_specialisations

    listed = all_specialisations() if everything else ci_specialisations()
    if not names:
        return listed
    known, labels = kernel_names(), {each.label for each in all_specialisations()}
    for name in names:
        if name not in known and name not in labels:
            raise UsageProblem(f"unknown kernel {name!r}{near(name, known)}")
    by_label = [each for each in all_specialisations() if each.label in names]
    return tuple(dict.fromkeys([*(each for each in listed if each.kernel.name in names), *by_label]))


def archs_for(given: Sequence[str]) -> tuple[str, ...]:
    """The architectures to compile for: the given ones, "all" of ours, or what this machine's GPU takes.

    Raises:
        UsageProblem: one is not ours.
    """
    for arch in given:
        if arch != "all" and arch not in ARCHITECTURES:
            raise UsageProblem(f"--arch {arch!r}{near(arch, (*ARCHITECTURES, 'all'))}")
    if "all" in given:
        return ARCHITECTURES
    return tuple(dict.fromkeys(given)) or (own_arch(),)


def own_arch() -> str:
    """The architecture of the first GPU, or the usual one where there is none. Imports torch."""
    from yaie_cuda.compiler import arch_for
    from yaie_cuda.device import has_driver, unusable_reason

    if not has_driver() or unusable_reason():
        return USUAL_ARCH
    import torch

    return arch_for(*torch.cuda.get_device_capability(0))


def compile_catalogue(
    specialisations: Sequence[Specialisation], archs: Sequence[str], progress: Progress | None = None
) -> list[dict[str, Any]]:
    """A dict of FIELDS for each specialisation and architecture. `progress` gets (done, all, label).

    Raises:
        KernelError: there is no compiler; the text says what to install.
    """
    from yaie_cuda.compiler import compile_all
    from yaie_cuda.errors import ToolMissingError
    from yaie_engine.errors import KernelError

    def say(done: int, count: int, report: CompileReport) -> None:
        if progress is not None:
            progress(done, count, report.name)

    wanted = [(each, arch) for arch in archs for each in specialisations]
    try:
        return [entry_of(report) for report in compile_all(wanted, say)]
    except ToolMissingError as error:
        raise KernelError(str(error)) from None


def entry_of(report: CompileReport) -> dict[str, Any]:
    """The fields of a report that are listed."""
    return {name: getattr(report, name) for name in FIELDS}


def catalogue_table(entries: Sequence[Mapping[str, Any]], users: Mapping[str, str] | None = None) -> Table:
    """The entries as a table; `users` names the engines that run a label. Times are left out in static mode."""
    columns = [Column("specialisation"), Column("arch"), Column("registers", True), Column("shared", True)]
    columns += [Column("spilled", True), Column("size", True)]
    columns += [] if static_mode() else [Column("compiled in", True)]
    columns += [] if users is None else [Column("used by")]
    return Table(tuple(columns), tuple(_row(entry, users) for entry in entries))


def _row(entry: Mapping[str, Any], users: Mapping[str, str] | None) -> tuple[str, ...]:
    """One line. What was compiled earlier has no time: it took none now."""
    name = str(entry["name"])
    figures = ["—", "—", "—", "failed"]
    if entry["ok"]:
        figures = [str(entry["registers"]), f"{entry['shared_bytes']:,} B", f"{entry['spill_bytes']:,} B"]
        figures.append(f"{entry['cubin_bytes'] / 1024:.1f} KiB")
    took = "—" if not entry["ok"] else "cached" if entry["cached"] else f"{entry['compile_ms']:.0f} ms"
    times = [] if static_mode() else [took]
    return (name, str(entry["arch"]), *figures, *times, *([] if users is None else [users.get(name, "")]))
