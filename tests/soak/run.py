"""Runs the rows of the soak, two at a time, and prints one table: `./scripts/soak --minutes M`."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import platform
import queue
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.comparison.machine import commit

from . import result
from .figure import Figure
from .rows import BY_NUMBER, ROWS, Row, sizes

ROOT = Path(__file__).resolve().parents[2]
LOGS = ROOT / "build" / "soak"
PATIENCE = 6
"""Times the seconds it should take (and ten minutes) until a row counts as hung."""
Command = Callable[[Row, int, int, Path], list[str]]


def child_command(row: Row, size: int, seed: int, answer: Path) -> list[str]:
    """How a row is started."""
    return [sys.executable, "-m", "tests.soak.child", str(row.number), str(size), str(seed), str(answer)]


def figure_of(answer: Path) -> dict[str, Any]:
    """What a row wrote.

    Raises:
        OSError, ValueError, KeyError, TypeError: it is not there, or no figure.
    """
    found = json.loads(answer.read_text(encoding="utf-8"))
    return dataclasses.asdict(Figure(**{**found, "faults": tuple(found["faults"])}))


@dataclass
class Runner:
    """Rows in processes of their own, side by side; what they print goes into files."""

    seed: int
    limit_s: float
    command: Command = child_command
    logs: Path = LOGS

    def __post_init__(self) -> None:
        self.logs.mkdir(parents=True, exist_ok=True)
        self.running: dict[int, subprocess.Popen[bytes]] = {}
        self.ended: queue.SimpleQueue[result.Result] = queue.SimpleQueue()
        self._stopped = threading.Event()

    def work(self, todo: queue.SimpleQueue[tuple[Row, int]]) -> None:
        """One worker: row after row until none is left."""
        while not self._stopped.is_set():
            try:
                row, size = todo.get_nowait()
            except queue.Empty:
                return
            found = self.one(row, size)
            if not self._stopped.is_set():
                self.ended.put(found)

    def one(self, row: Row, size: int) -> result.Result:
        """Start a row and wait for its figure."""
        start = time.monotonic()
        base = {"row": row.number, "what": row.what, "gate": row.gate, "size": size, "seed": self.seed}
        log = self.logs / f"row-{row.number}.log"
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1"}
        with tempfile.TemporaryDirectory(prefix="yaie-soak-") as folder, log.open("wb") as said:
            answer = Path(folder) / "figure.json"
            child = subprocess.Popen(
                self.command(row, size, self.seed, answer), cwd=ROOT, env=environment, stdin=subprocess.DEVNULL,
                stdout=said, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            self.running[row.number] = child
            try:
                child.wait(self.limit_s)
                figure = figure_of(answer)
            except subprocess.TimeoutExpired:
                figure = {
                    "figure": "it hung",
                    "faults": (f"it did not end within {self.limit_s:.0f} s; see {log.name}",),
                }
            except (OSError, ValueError, KeyError, TypeError):  # it wrote none, or not all of it
                figure = {
                    "figure": "it died",
                    "faults": (f"ended with {child.returncode} and no figure; see {log.name}",),
                }
            finally:
                end(child)
                self.running.pop(row.number)
        done = figure.pop("size", "")
        return result.Result(**base, **figure, done=done, seconds=time.monotonic() - start)

    def stop(self) -> None:
        """End what runs."""
        self._stopped.set()
        for child in list(self.running.values()):
            end(child)


def end(child: subprocess.Popen[bytes]) -> None:
    """The process and all that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def run(rows: Sequence[Row], size_of: dict[int, int], runner: Runner, jobs: int, soak: result.Soak) -> None:
    """Fill `soak`; a line for each row as it ends, and one every half minute while none does.

    Raises:
        KeyboardInterrupt: it was interrupted; what ended until then is in `soak`.
    """
    start, todo = time.monotonic(), queue.SimpleQueue[tuple[Row, int]]()
    for row in sorted(rows, key=lambda row: -row.weight):
        todo.put((row, size_of[row.number]))
    workers = [threading.Thread(target=runner.work, args=(todo,), daemon=True) for _ in range(jobs)]
    for worker in workers:
        worker.start()
    try:
        while len(soak.results) < len(rows):
            try:
                one = runner.ended.get(timeout=30)
            except queue.Empty:
                now = time.monotonic() - start
                print(f"soak: {now:4.0f} s: rows {', '.join(map(str, sorted(runner.running)))} run", flush=True)
                continue
            soak.results.append(one)
            progress(one, soak, rows)
        soak.complete = True
    finally:
        runner.stop()
        soak.seconds = time.monotonic() - start


def progress(one: result.Result, soak: result.Soak, rows: Sequence[Row]) -> None:
    """A line for a row that ended."""
    count = f"{len(soak.results)} of {len(rows)}"
    print(f"soak: {count}: row {one.row} {one.verdict} ({one.done}; {one.told}) {one.seconds:.0f} s", flush=True)


def machine() -> dict[str, str | int | float]:
    """Where it ran."""
    return {
        "cores": os.cpu_count() or 1,
        "memory_gb": round(psutil.virtual_memory().total / 2**30, 1),
        "load_before": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "system": platform.system(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "commit": commit(),
    }


def row_list(text: str) -> list[Row]:
    """`1,4,8-10` as rows."""
    numbers: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        if not (first.isdigit() and (last or first).isdigit()):
            raise argparse.ArgumentTypeError(f"{part!r}: rows are numbers or ranges, as in 1,4,8-10")
        numbers += range(int(first), int(last or first) + 1)
    found = [BY_NUMBER[number] for number in dict.fromkeys(numbers) if number in BY_NUMBER]
    if not found:
        raise argparse.ArgumentTypeError(f"{text}: there are rows {', '.join(map(str, BY_NUMBER))}")
    return found


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser("soak", description="Runs the rows of the reliability table.", allow_abbrev=False)
    made.add_argument("--minutes", type=float, default=10.0, help="about how long, on two quiet cores (default 10)")
    made.add_argument("--rows", type=row_list, default=list(ROWS), metavar="LIST", help="only these, as in 1,4,8-10")
    made.add_argument("--size", type=int, help="of the one row that is chosen, instead of what the minutes allow")
    made.add_argument("--seed", type=int, help="of all random numbers (default: a new one, which is printed)")
    made.add_argument("--jobs", type=int, default=2, help="rows at a time (default 2)")
    made.add_argument("--out", type=Path, help="where the JSON goes (default build/soak/soak.json)")
    made.add_argument("--list", action="store_true", help="print the rows and their sizes, run nothing")
    return made


def checked(arguments: Sequence[str]) -> argparse.Namespace:
    """What was asked for; a wrong value ends with 2."""
    made = parser()
    given = made.parse_args(arguments)
    if not 0 < given.minutes <= 7 * 24 * 60:
        made.error(f"--minutes {given.minutes:g}: more than 0 and at most a week ({7 * 24 * 60})")
    if not 1 <= given.jobs <= 64:
        made.error(f"--jobs {given.jobs}: 1 to 64")
    if given.size is not None and (len(given.rows) != 1 or given.size < 1):
        made.error("--size: a number from 1 on, with --rows and one row")
    if given.seed is not None and not 0 <= given.seed < 2**32:
        made.error(f"--seed {given.seed}: 0 to {2**32 - 1}")
    return given


def main(arguments: Sequence[str]) -> int:
    """0: every row ran and its gate holds (in part where the minutes allow no more, which is said); 1: a gate does
    not; 2: a wrong call; 3: no gate broke, and a row that was asked for did not run, or not whole though the minutes
    should do; 130: interrupted, with the table so far.
    """
    given = checked(arguments)
    seconds = 60 * given.minutes
    size_of = sizes(given.rows, seconds * given.jobs)
    if given.size is not None:
        size_of = {given.rows[0].number: given.size}
    if given.list:
        for row in given.rows:
            print(f"{row.number:>3}  {row.what}: {size_of[row.number]} {row.unit}; gate: {row.gate}")
        return 0
    seed = random.SystemRandom().randrange(2**31) if given.seed is None else given.seed
    soak = result.Soak(given.minutes, seed, machine())
    print(f"soak: {len(given.rows)} rows in about {given.minutes:g} minutes, {given.jobs} at a time, seed {seed}")
    runner = Runner(seed, 600 + PATIENCE * seconds * max(1, given.jobs) / len(given.rows))
    interrupted = False
    try:
        run(given.rows, size_of, runner, given.jobs, soak)
    except KeyboardInterrupt:
        interrupted = True
    out = given.out or LOGS / "soak.json"
    soak.write(out)
    print(f"\n{soak.table()}\n\n{soak.summary()}\nsoak: written to {out}; output of the rows in {runner.logs}")
    if soak.not_run:
        numbers = ", ".join(str(one.row) for one in soak.not_run)
        print(f"soak: NOT RUN, or not whole: {numbers}. This is no green run; install what they lack or leave them out")
    if soak.in_part:
        numbers = ", ".join(str(one.row) for one in soak.in_part)
        print(f"soak: IN PART: {numbers}: {given.minutes:g} minutes are too few for them; ask for more, or for one row")
    return 130 if interrupted else 1 if soak.red else 3 if soak.not_run else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
