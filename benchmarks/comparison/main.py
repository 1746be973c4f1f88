"""The command line of the comparison."""

from __future__ import annotations

import argparse
import datetime
import json
import math
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from yaie_magic.bench.cores import usable_cores
from yaie_magic.bench.workloads import FULL, SMALL, WORKLOADS, Workload, make, scaled

from . import machine, models
from .cleaned import without_paths
from .comparing import CHECKED, Comparison, Plan
from .estimate import estimate, scale_of, told
from .guard import wait_until_quiet
from .native import HOW_TO_BUILD
from .page import write_picture
from .peer import OURS, PEERS, Setup
from .report import table
from .rounds import Rules

WRONG, BUSY = 1, 4
QUIET_S = 120.0
RULES = Rules()


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(
        prog="benchmarks/compare",
        description="Runs this engine and each peer that is there side by side: the same token ids, greedy, no end of "
        "text, in turns, each in a process of its own. Prints one table a workload; writes compare.json and "
        "compare.svg. Exit code: 0 measured, 1 outputs differ or a peer failed, 4 the machine is busy.",
        epilog=HOW_TO_BUILD,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--peers", help=f"some of {', '.join(PEERS)} (all; {OURS} always)")
    made.add_argument("--workloads", help=f"some of {', '.join(WORKLOADS)} (all)")
    made.add_argument("--model", type=Path, help="a model folder with real weights; prompts are then real text")
    made.add_argument("--gguf", type=Path, help="the same weights for llama.cpp (with --model)")
    made.add_argument("--gguf-float32", type=Path, help="and in float32, to compare outputs (with --model)")
    made.add_argument("--llama-server", default="", metavar="PATH", help="llama.cpp's server, built for this CPU")
    made.add_argument("--dtype", choices=tuple(models.GGUF_TYPES), default="bfloat16", help="(bfloat16)")
    made.add_argument("--threads", type=int, default=usable_cores(), help="of every peer (all cores)")
    made.add_argument("--rounds", type=int, default=RULES.rounds, help=f"({RULES.rounds})")
    made.add_argument(
        "--limit",
        type=float,
        default=RULES.limit,
        help=f"largest share of the machine that others may take while something is measured ({RULES.limit})",
    )
    made.add_argument(
        "--tries", type=int, default=RULES.tries, help=f"of a repetition that was disturbed ({RULES.tries})"
    )
    made.add_argument(
        "--minutes",
        type=float,
        default=0.0,
        help="begin no round, no second try and no comparison of outputs after so many (no end)",
    )
    made.add_argument("--allow-load", action="store_true", help="measure on a busy machine, too; the result says so")
    made.add_argument("--no-check", action="store_true", help="do not compare outputs in float32")
    made.add_argument("--out", type=Path, default=models.FOLDER / "results", help="folder for results and logs")
    made.add_argument("--small", action="store_true", help="try the command itself: a tiny model and short prompts")
    return made


def main(arguments: Sequence[str]) -> int:
    """Do what the command line says."""
    made = parser()
    options = made.parse_args(arguments)
    try:
        plan = plan_of(options)
    except ValueError as error:
        made.error(str(error))
    say(told(expected(plan, options), plan.rules.tries, options.minutes))
    if not options.allow_load:
        share = wait_until_quiet(options.limit, QUIET_S)
        if share > options.limit:
            print(
                f"compare: other processes take {share:.0%} of this machine, at most {options.limit:.0%} is allowed "
                f"(--limit); I waited {QUIET_S:.0f} s. --allow-load measures nevertheless, and says so",
                file=sys.stderr,
            )
            return BUSY
    options.out.mkdir(parents=True, exist_ok=True)
    begun, clock = datetime.datetime.now(datetime.UTC), time.monotonic()
    until = clock + 60 * options.minutes if options.minutes else math.inf
    found = Comparison(replace(plan, rules=replace(plan.rules, until=until)), say).run()
    run = {
        "kind": "comparison",
        "started": begun.isoformat(timespec="seconds"),
        "seconds": round(time.monotonic() - clock, 1),
        "command": shlex.join(["benchmarks/compare", *arguments]),
        "machine": machine.facts(),
        "model": {"name": Path(plan.setup.model).name, "words": plan.words},
        "dtype": options.dtype,
        "threads": options.threads,
        "rounds": options.rounds,
        "limit": options.limit,
        "allow_load": options.allow_load,
        "small": options.small,
        **found,
    }
    run = without_paths(run)
    (options.out / "compare.json").write_text(json.dumps(run, indent=1) + "\n", encoding="utf-8")
    write_picture(run, options.out / "compare.svg")
    print(table(run), flush=True)
    return WRONG if wrong(run) else 0


def expected(plan: Plan, options: argparse.Namespace) -> float:
    """Seconds that the plan will take, roughly."""
    workloads = {name: make(0) for name, make in plan.workloads.items()}
    peers = [name for name in plan.peers if not PEERS[name].missing(plan.setup)]
    check = CHECKED if plan.check is not None else {}
    scale = scale_of(Path(plan.setup.model), min(options.threads, usable_cores()))
    return estimate(peers, workloads, plan.rules.rounds, check, scale)


def wrong(run: dict[str, Any]) -> bool:
    """Whether outputs differ, or a peer that is there failed."""
    differs = any(each["different"] for each in run["agreement"])
    rows = [row for workload in run["workloads"] for row in workload["rows"]]
    return differs or any(row["problem"] and not row["declined"] for row in rows)


def plan_of(options: argparse.Namespace) -> Plan:
    """What is to be run, checked.

    Raises:
        ValueError: an option is wrong; the text says how.
    """
    names = chosen("--workloads", options.workloads, WORKLOADS)
    peers = [OURS, *(name for name in chosen("--peers", options.peers, PEERS) if name != OURS)]
    for name, value, least in (
        ("rounds", options.rounds, 1),
        ("tries", options.tries, 1),
        ("threads", options.threads, 1),
    ):
        if value < least:
            raise ValueError(f"--{name} {value}: at least {least}")
    if options.minutes < 0:
        raise ValueError(f"--minutes {options.minutes:g}: more than 0, or 0 for no end")
    if not 0 < options.limit <= 1:
        raise ValueError(f"--limit {options.limit}: more than 0 and at most 1")
    if (options.gguf or options.gguf_float32) and not options.model:
        raise ValueError("--gguf goes with --model: the random model's own file is written when it is needed")
    folder = options.model or models.random_folder(options.small)
    ids = models.prompts_of(folder, real=options.model is not None)
    sizes = SMALL if options.small else scaled(FULL, usable_cores())
    workloads: dict[str, Callable[[int], Workload]] = {
        name: lambda repetition, name=name: make(name, ids, sizes, repetition)  # type: ignore[misc]
        for name in names
    }
    samples = [each(0) for each in workloads.values()]
    at_most = max([1, *(len(each.asks) for each in samples if each.at_once)])
    ggufs = gguf_files(options, folder, "llama.cpp" in peers)

    def setup(dtype: str) -> Setup:
        room = max(each.longest for each in samples)
        return Setup(
            str(folder),
            ggufs.get(dtype, ""),
            dtype,
            options.threads,
            room,
            at_most,
            options.llama_server,
            str(options.out),
        )

    words = f"the model {folder.name} and real text" if options.model else "a Llama of 100M random weights"
    if options.small:
        words = f"{words}, short prompts" if options.model else "a tiny random Llama"
        words += " (no measurement)"
    rules = Rules(options.rounds, 1.0 if options.allow_load else options.limit, options.tries)
    check = None if options.no_check else setup("float32")
    return Plan(peers, workloads, setup(options.dtype), check, rules, words, options.out)


def gguf_files(options: argparse.Namespace, folder: Path, wanted: bool) -> dict[str, str]:
    """By type of weights; the random model's are written now, when llama.cpp takes part."""
    if options.model:
        given = {options.dtype: options.gguf, "float32": options.gguf_float32}
        return {dtype: str(path) for dtype, path in given.items() if path}
    if not (wanted and options.llama_server):
        return {}
    kinds = {options.dtype} if options.no_check else {options.dtype, "float32"}
    return {dtype: str(models.random_gguf(folder, dtype)) for dtype in kinds}


def chosen(flag: str, given: str | None, known: dict[str, Any]) -> list[str]:
    """The names in a list with commas, in the order of the table.

    Raises:
        ValueError: one is unknown.
    """
    names = [name.strip() for name in given.split(",")] if given else list(known)
    for name in names:
        if name not in known:
            raise ValueError(f"{flag} {name}: there are {', '.join(known)}")
    return [name for name in known if name in names]


def say(line: str) -> None:
    """Progress, for people."""
    print(line, file=sys.stderr, flush=True)
