"""Part "compile": every specialisation that an op can ask for, compiled for this GPU and loaded."""

from __future__ import annotations

import statistics
import time

import torch

from yaie_cuda import catalog
from yaie_cuda.compiler import arch_for, compile_all
from yaie_cuda.kernel import Specialisation
from yaie_cuda.report import CompileReport

from .context import Context

TINY = 2


def run(context: Context) -> None:
    """Compile in a thread pool, then load each; spills are wrong, slow compiles are only told."""
    arch = this_arch(context.bench.device)
    wanted = list(catalog.all_specialisations())
    if context.tiny:
        wanted = list(catalog.ci_specialisations())[:TINY]
    start = time.perf_counter()
    reports = compile_all([(one, arch) for one in wanted])
    seconds = time.perf_counter() - start
    tell(context, arch, reports, seconds)
    if context.bench.device.type == "cuda":
        load(context, wanted)


def this_arch(device: torch.device) -> str:
    """The arch of the GPU; sm_90 where there is none."""
    return arch_for(*torch.cuda.get_device_capability(device)) if device.type == "cuda" else "sm_90"


def tell(context: Context, arch: str, reports: list[CompileReport], seconds: float) -> None:
    """What failed, what spilled, how long it took."""
    for report in reports:
        if not report.ok:
            lines = [line for line in report.log.splitlines() if "error" in line] or report.log.splitlines() or [""]
            context.check(f"{report.name} compiles for {arch}", False, lines[0][:300])
        elif report.spill_bytes:
            context.check(f"{report.name} does not spill", False, f"{report.spill_bytes} bytes")
    good = [report for report in reports if report.ok]
    context.check("all specialisations compile", len(good) == len(reports), f"{len(good)} of {len(reports)} for {arch}")
    fresh = [report.compile_ms for report in good if not report.cached]
    median = f"{statistics.median(fresh):.0f} ms" if fresh else "none was compiled now"
    context.fact(
        "compiled",
        {
            "arch": arch,
            "specialisations": len(reports),
            "found compiled": len(good) - len(fresh),
            "seconds": round(seconds, 2),
            "median of one": median,
            "most registers": max((report.registers for report in good), default=0),
            "cubin bytes": sum(report.cubin_bytes for report in good),
        },
    )


def load(context: Context, wanted: list[Specialisation]) -> None:
    """Load every kernel into the GPU's context and set its shared memory."""
    from yaie_cuda.device import launcher

    gpu = launcher(context.bench.device.index or 0)
    start, failed = time.perf_counter(), 0
    for one in wanted:
        try:
            gpu.warm_up([one])
        except Exception as error:  # each is a finding of its own
            failed += 1
            context.check(f"{one.label} loads", False, f"{type(error).__name__}: {error}"[:300])
    context.check("all specialisations load", not failed, f"in {time.perf_counter() - start:.2f} s")
