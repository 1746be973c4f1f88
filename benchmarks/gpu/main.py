"""The command line of the check: prepare, run parts, write one JSON and a table."""

from __future__ import annotations

import argparse
import datetime
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from . import bundle
from .parts import PARTS, Part, chosen
from .records import Check, Fact
from .report import CHECKS_FAILED, Report
from .runner import PartResult, Runner, child_command

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "benchmarks" / "gpu_check"
ALL_SECONDS = 470
LEAST_SECONDS = 12
CPU_PATIENCE = 10
"""On the CPU nothing is in a hurry, and others may keep it busy."""


def parser() -> argparse.ArgumentParser:
    """The options."""
    parts = ", ".join(part.name for part in PARTS)
    made = argparse.ArgumentParser(
        prog="benchmarks/gpu_check",
        description="Checks every kernel and the engine on a GPU, and measures them. Exit code: 0 all is well, 1 a "
        "check failed or a part did not end, 3 all is right but a target was missed.",
    )
    made.add_argument("--prepare", action="store_true", help="fetch wheels and compile kernels to bring along, and end")
    made.add_argument("--arch", action="append", metavar="SM", help="with --prepare: architectures (default sm_90)")
    made.add_argument("--python", default="3.12", help="with --prepare: the machine's Python (3.12)")
    made.add_argument("--out", type=Path, default=Path("gpu_check_results"), help="folder for JSON, table and log")
    made.add_argument("--parts", help=f"some of {parts}")
    made.add_argument("--quick", action="store_true", help="fewer shapes and samples")
    made.add_argument("--cpu", action="store_true", help="try the check itself: emulated kernels, tiny shapes")
    made.add_argument("--seconds", type=float, default=ALL_SECONDS, help=f"limit of the whole run ({ALL_SECONDS})")
    made.add_argument("--child", help=argparse.SUPPRESS)
    made.add_argument("--records", type=Path, help=argparse.SUPPRESS)
    return made


def main(arguments: Sequence[str]) -> int:
    """Do what the command line says."""
    options = parser().parse_args(arguments)
    if options.child:
        from .child import run_child

        return run_child(options.child, options.records, options.seconds, quick=options.quick, cpu=options.cpu)
    if options.prepare:
        from .preparing import prepare

        return prepare(options.arch or ["sm_90"], options.python)
    try:
        parts = chosen(options.parts)
    except ValueError as error:
        parser().error(str(error))
    options.out.mkdir(parents=True, exist_ok=True)
    log = options.out / "gpu_check.log"
    log.unlink(missing_ok=True)
    report = Report(datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"), judged=not options.cpu)
    with tempfile.TemporaryDirectory(prefix="gpu_check_") as scratch:
        try:
            brought = bundle.unpack_missing(Path(scratch) / "site")
        except FileNotFoundError as error:
            print(f"gpu_check: {error}", file=sys.stderr)
            return CHECKS_FAILED
        report.begun.append(Fact("brought along", brought))
        flags = [flag for flag, given in (("--quick", options.quick), ("--cpu", options.cpu)) if given]

        def on_news(result: PartResult) -> None:
            report.update(result)
            report.write(options.out / "gpu_check.json")

        environment = environment_of_parts(Path(scratch), cpu=options.cpu)
        runner = Runner(child_command(SCRIPT, flags), environment, Path(scratch), log, on_news)
        patience = CPU_PATIENCE if options.cpu else 1
        run_parts(runner, report, parts, options.seconds * patience, patience)
    report.write(options.out / "gpu_check.json")
    table = report.table()
    (options.out / "gpu_check.txt").write_text(table + "\n", encoding="utf-8")
    print(table, flush=True)
    return report.exit_code


def run_parts(runner: Runner, report: Report, parts: Sequence[Part], seconds: float, patience: int = 1) -> None:
    """Run the parts within `seconds`. A part gets `patience` times its own limit, or what is left of the whole."""
    start = time.monotonic()
    for part in parts:
        left = seconds - (time.monotonic() - start)
        if left < LEAST_SECONDS:
            missed = Check(f"{part.name} runs", False, "no time was left for it")
            report.update(PartResult(part, "not run", records=[missed]))
            continue
        result = runner.run(part, min(part.seconds * patience, left))
        report.update(result)
        report.seconds = time.monotonic() - start
        print(f"{part.name:<13}{result.outcome:<13}{result.seconds:>7.1f} s  {part.words}", flush=True)


def environment_of_parts(scratch: Path, *, cpu: bool, given: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Parts find what was brought along before what is installed, and never look for a network."""
    paths = [str(scratch / "site"), *filter(None, [given.get("PYTHONPATH")])]
    environment = {**given, "PYTHONPATH": os.pathsep.join(paths), "HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1"}
    environment["TMPDIR"] = str(scratch)  # models that a part wrote go with it, however it ends
    # Kernels that were compiled ahead, and those that parts compile. What the emulator builds must not travel.
    if cpu:
        environment["OMP_NUM_THREADS"] = "1"  # shapes are too small to share
    elif bundle.KERNELS.is_dir():
        environment["YAIE_CACHE_DIR"] = str(bundle.KERNELS)
    return environment
