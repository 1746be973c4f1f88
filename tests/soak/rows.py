"""The rows of the soak: what each is, what must hold, and how much of it fits into a second."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass

from .figure import Figure

Run = Callable[[int, int], Figure]


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table.

    `rate`: units of `unit` in a second on two quiet cores; `start_s`: seconds before the first of them; `weight`: its
    part of the time. `make` gives what runs it, imported only in the process that does.
    """

    number: int
    what: str
    gate: str
    unit: str
    rate: float
    least: int
    weight: float
    make: Callable[[], Run]
    start_s: float = 4.0
    most: int = 10**9

    def size(self, seconds: float) -> int:
        """How much fits into so many seconds."""
        return max(self.least, min(self.most, int(self.rate * (seconds - self.start_s))))


def own(name: str) -> Callable[[], Run]:
    """A row of this folder: `module.function`, imported only where it runs."""

    def make() -> Run:
        module, function = name.split(".")
        found: Run = getattr(importlib.import_module(f"tests.soak.{module}"), function)
        return found

    return make


def tests(
    *paths: str, whole_s: float, keyword: str = "", each: int = 1, noun: str = "tests", full: bool = False
) -> Callable[[], Run]:
    """A row of tests that exist, all of which take `whole_s` on two quiet cores; `full`: also those of full grids."""

    def make() -> Run:
        from .suite import suite

        found = tuple(f"tests/{path}" for path in paths)
        return suite(*found, whole_s=whole_s, keyword=keyword, each=each, noun=noun, full=full)

    return make


DEAD_DEVICES = ("engine/test_engine_death.py", "engine/test_lost_at_load.py")
SANITIZED = ("kernels/test_planted_in_kernels.py", "kernels/test_planted_bugs.py", "kernels/test_cache_kernel.py")
SANITIZED += ("kernels/test_sampling_kernel.py", "kernels/test_fused_kernel.py", "kernels/test_radix_kernel.py")
SANITIZED += ("kernels/test_decode_kernel.py", "kernels/test_prefill_kernel.py", "kernels/test_cpu_sanitizers.py")
SANITIZED += ("kernels/test_emulator.py", "kernels/test_emulator_faults.py")
FAULTY = "(planted or sanitizer) and not wide_vectors"
THREADS = ("fault/test_guards.py", "engine/test_openmp.py", "engine/test_sleep_threads.py")
EMULATED = tuple(
    f"kernels/test_{name}.py"
    for name in (
        "decode_kernel", "prefill_kernel", "cache_kernel", "sampling_kernel", "fused_kernel", "merge_kernel",
        "radix_kernel", "emulated_cascade", "emulated_engine", "emulated_models",
    )
)  # fmt: skip

ROWS = (
    Row(1, "state machine over pool, tree and scheduler", "0 breaches of the rules of blocks and steps",
        "machines", 27, 60, 3, own("machine.state_machine")),
    Row(2, "liveness: what is admitted ends", "every drain ends; at most 10 steps without a token or a preemption",
        "machines", 80, 60, 1, own("machine.liveness")),
    Row(3, "random cancels in every state of a request", "0 leaked, 0 lost, blocks free within 2 steps",
        "cancels", 240, 200, 2, own("cancels.random_cancels"), 6),
    Row(4, "greedy answers against transformers' generate", "0 differences that are no near tie",
        "prompts", 14, 20, 2, own("greedy.greedy_equality"), 6),
    Row(5, "errors at each place of a step", "only who was in it fails; the next request works; 0 leaks",
        "rounds", 6, 62, 2, own("faults.errors"), 6),
    Row(6, "logits that are no numbers or of a wrong shape", "the request fails with its reason, no garbage text",
        "seconds", 1, 5, 1, tests("engine/test_bad_logits.py", "engine/test_anomaly.py", whole_s=10)),
    Row(7, "a lost device", "the engine is failed and says to restart; nothing hangs",
        "seconds", 1, 5, 1, tests(*DEAD_DEVICES, whole_s=12)),
    Row(8, "interrupts of cells in a real kernel", "cell ends, engine alive, books right, next answer as ever",
        "interrupts", 0.8, 3, 2, own("interrupts.interrupts"), 12),
    Row(9, "reload, double load, fork, kernel restart", "no thread, process, socket or file is left",
        "turns", 0.04, 1, 1.5, own("restarts.restarts"), 4, most=200),
    Row(10, "kill -9 while the prefix store writes", "0 torn records, orphans swept",
        "seconds", 1, 5, 1.5, tests("store/test_folder.py", whole_s=10, keyword="killed", each=10, noun="kills")),
    Row(11, "disk full, EIO, EROFS, EACCES", "answers go on, one warning, no part of a record is left",
        "seconds", 1, 5, 1, tests("store/test_folder.py", "store/test_restore.py", whole_s=8, keyword="disk")),
    Row(12, "damaged records", "0 accepted that are not whole",
        "records", 9000, 2000, 1, own("records.damaged_records"), 6),
    Row(13, "damaged and hostile model folders", "one clear line each, no code run",
        "seconds", 1, 10, 2, tests("loading/test_mutations.py", "loading/test_screen.py", whole_s=10)),
    Row(14, "ten times as many clients as fit", "200 or 429 with Retry-After; all counted; it recovers",
        "seconds", 1, 2, 1, own("overload.overload"), 8),
    Row(15, "clients that never read, read slowly or reset", "their requests end, the others' texts are right",
        "clients of each kind", 1, 5, 1.5, own("readers.bad_readers"), 8, most=50),
    Row(16, "generated requests to every route", "0 answers of 5xx, all as the schema says",
        "seconds", 1, 10, 2, tests("server/test_fuzz.py", whole_s=17)),
    Row(17, "bytes that no honest client sends", "the right status or a close; /health is answered throughout",
        "connections", 60, 100, 1, own("abuse.abuse"), 8),
    Row(18, "fuzzed parsers", "only declared errors, nothing hangs, memory bounded",
        "seconds a target", 1 / 17, 2, 4, own("fuzzing.fuzzing"), 60),
    Row(19, "twice as much work", "at most 2.5 times the lines run",
        "elements", 250, 1024, 1, own("doubling.doubling"), 4, most=16384),
    Row(20, "emulated kernels against the reference", "within the bound of each type, guards intact",
        "seconds", 1, 20, 4, tests(*EMULATED, whole_s=45, keyword="not sanitizer")),
    Row(21, "kernels under sanitizers, and planted mistakes", "0 reports; each planted mistake is caught",
        "seconds", 1, 240, 4, tests(*SANITIZED, whole_s=130, keyword=FAULTY, full=True)),
    Row(23, "hostile text in every view, and exported", "0 scripts run",
        "seconds", 1, 10, 2, tests("live/test_hostile_live.py", "live/test_hostile_export.py", whole_s=26)),
    Row(24, "mixed load with cancels, store on", "threads and descriptors constant, 0 breaches, 0 wrong answers",
        "rounds", 0.5, 4, 3, own("mixed.mixed"), 8),
    Row(25, "mistakes planted in pool, tree, scheduler and store", "at least 95 of 100 are caught by a test",
        "mistakes", 0.2, 40, 4, own("mutation.mutation"), 10),
    Row(26, "thread discipline", "only the engine's thread changes the books",
        "seconds", 1, 5, 1.5, tests(*THREADS, whole_s=24)),
)  # fmt: skip
BY_NUMBER = {row.number: row for row in ROWS}


def sizes(chosen: list[Row], seconds: float) -> dict[int, int]:
    """The size of each row, so that all of them together take about so many seconds of one core each."""
    total = sum(row.weight for row in chosen)
    return {row.number: row.size(seconds * row.weight / total) for row in chosen}
