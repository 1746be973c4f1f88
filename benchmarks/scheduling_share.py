"""Which part of a decode step is not the model: processor time of the engine's thread, by phase."""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import scheduling_cost, scheduling_growth, scheduling_page
from benchmarks.run_file import Begun

TARGET = 0.05  # of a step, for scheduling, matching and bookkeeping
COUNTS = (1, 16, 64)
PROMPT, OUTPUT = 64, 24
TOLD = ("schedule", "forward", "sample", "publish")  # by the flight recorder, in this order
PHASES = ("schedule", "inputs", "forward", "sample", "publish", "rest")
BOOKS = ("schedule", "inputs", "publish", "rest")


class Meter:
    """Adds up the processor time in seconds that the calling thread spends in some functions."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def around(self, function: Callable[..., Any], then: Callable[[], None] = lambda: None) -> Callable[..., Any]:
        """`function`, with what it takes added; `then` is called after each call."""

        def metered(*args: Any, **named: Any) -> Any:
            start = time.thread_time()
            try:
                return function(*args, **named)
            finally:
                self.seconds += time.thread_time() - start
                then()

        return metered


@contextmanager
def replaced(*places: tuple[Any, str, object]) -> Iterator[None]:
    """These attributes of classes or objects are others as long as this lasts."""
    before = [(owner, name, vars(owner).get(name)) for owner, name, _ in places]
    for owner, name, value in places:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, value in before:
            if value is None:
                delattr(owner, name)
            else:
                setattr(owner, name, value)


def phases(llm: Any, count: int) -> dict[str, float]:
    """Milliseconds of a step of `count` decodes by phase: the median of those steps. Tier "flat".

    "inputs" are taken off "forward"; "rest" is what the recorder charges to no phase, such as its own work.
    """
    from yaie_engine import SamplingParams
    from yaie_engine.overlap import StepClock
    from yaie_engine.tiers.flat import FlatInputs, FlatTier

    rng, engine = random.Random(0), llm._engine
    prompts = [[rng.randrange(260, llm.vocab_size - 8) for _ in range(PROMPT)] for _ in range(count)]
    params = SamplingParams(temperature=0, max_tokens=OUTPUT, ignore_eos=True)
    inputs, whole, seen = Meter(), Meter(), dict[int, tuple[float, float]]()

    def ended() -> None:
        seen[engine.scheduler.step] = (1000 * inputs.seconds, 1000 * whole.seconds)
        inputs.seconds = whole.seconds = 0.0

    before = llm.step
    with replaced(
        (FlatTier, "_inputs", inputs.around(FlatTier._inputs)),
        (FlatInputs, "send", inputs.around(FlatInputs.send)),
        (engine, "step", whole.around(engine.step, ended)),
        (engine, "_clock", StepClock(time.thread_time)),
    ):
        for handle in [llm.submit(prompt, params) for prompt in prompts]:
            handle.result()
        llm.snapshot()  # when the last step is over
    rows = []
    for step in llm._engine.recorder.steps():
        if step.step > before and (step.num_prefill_tokens, step.num_decode_tokens) == (0, count):
            made, took = seen[step.step]
            told = {name: getattr(step.ms, name) for name in TOLD}
            rows.append({**told, "forward": told["forward"] - made, "inputs": made, "rest": took - sum(told.values())})
    return {name: statistics.median(row[name] for row in rows) for name in PHASES}


def books(found: Mapping[str, float]) -> float:
    """Which part of a step is not the model."""
    return sum(found[name] for name in BOOKS) / sum(found[name] for name in PHASES)


def print_share(folder: Path, dtype: str = "bfloat16") -> list[dict[str, float]]:
    """A line for each number of sequences; the milliseconds behind them."""
    import torch

    from yaie_engine import LLM

    torch.set_num_threads(1)
    print(
        f"\nShare of a decode step, processor time of the engine's thread in ms ({folder.name}, {dtype}, one thread);"
    )
    print(f"books: {', '.join(BOOKS)}, at most {TARGET:.0%} at {COUNTS[-1]} sequences")
    print(f"{'sequences':<10}" + "".join(f"{name:>10}" for name in PHASES) + f"{'books':>10}")
    rows = []
    with LLM(str(folder), dtype=dtype, max_num_seqs=COUNTS[-1]) as llm:
        for count in COUNTS:
            llm.reset()
            found = phases(llm, count)
            rows.append({"sequences": count, **found})
            share = books(found)
            verdict = "" if count != COUNTS[-1] else "   OVER" if share > TARGET else "   ok"
            cells = "".join(f"{found[name]:>10.3f}" for name in PHASES)
            print(f"{count:<10}{cells}{share:>10.1%}{verdict}", flush=True)
    return rows


def main(arguments: list[str]) -> int:
    """Print everything."""
    parser = argparse.ArgumentParser(prog="benchmarks/scheduling", allow_abbrev=False)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--model", type=Path, metavar="FOLDER", help="of another model, whose attention is paged")
    which.add_argument("--no-model", action="store_true", help="leave out the share of a step")
    parser.add_argument("--out", type=Path, metavar="FILE", help="the figures as JSON too, for scripts/performance")
    given = parser.parse_args(arguments)
    run = Begun(scheduling_page.PART.kind, ["benchmarks/scheduling", *arguments])
    growth = scheduling_growth.measure()
    scheduling_growth.print_growth(growth)
    share: list[dict[str, float]] = []
    if not given.no_model:
        from benchmarks.comparison.models import random_folder

        share = print_share(given.model or random_folder())
    if given.out is not None:
        run.write(given.out, {"growth": [asdict(row) for row in growth], "share": share})
    scheduling_cost.print_policies()
    return 0
