"""Time to the first token after a long prefix: computed, in the engine's blocks, and read from the prefix store; and
what a running stream feels of a record that comes in, or of a prefix that is kept."""

from __future__ import annotations

import argparse
import itertools
import json
import random
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import prefix_store_page
from benchmarks.run_file import Begun
from yaie_engine import LLM, Generation, RequestOutput, SamplingParams

PREFIX, END, ROUNDS, MOST_S = 1024, 32, 5, 40.0
LARGE, STREAM = 2048, 60
WINDOW, WINDOW_ROUNDS, WINDOW_S = 256, 3, 25.0
PARAMS = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)
CASES = ("cold", "in memory", "store")


class Figures:
    """Milliseconds: `times` to the first token by case, a value for each round; `gaps` by what else happened; and the
    MiB of the large record."""

    def __init__(self) -> None:
        self.times: dict[str, list[float]] = {case: [] for case in CASES}
        self.gaps: dict[str, float] = {}
        self.size = 0.0


def measure(folder: str, store: str, rounds: int = ROUNDS, most_s: float = MOST_S) -> Figures:
    """Open the engine again and again; no round begins after `most_s` seconds, and the last one measures gaps as well.

    Raises RuntimeError where answers differ.
    """
    draw, figures, begun = random.Random(1), Figures(), time.monotonic()
    prefix, large = _ids(draw, PREFIX), _ids(draw, LARGE)
    ends = [_ids(draw, END) for _ in range(3)]
    with LLM(folder, dtype="bfloat16", prefix_store=store) as llm:
        expected = _ask(llm, [*prefix, *ends[0]])
        llm.save_prefix(prefix)
        figures.size = llm.save_prefix(large).num_bytes / 2**20
    last = False
    while not last:
        with LLM(folder, dtype="bfloat16", prefix_store=store) as llm:
            _ask(llm, ends[2] * 4)  # the first forward of a process is never the one to measure
            found = {
                "store": _ask(llm, [*prefix, *ends[0]]),
                "in memory": _ask(llm, [*prefix, *ends[1]]),
                "cold": _ask(llm, [*_ids(draw, PREFIX), *ends[0]]),
            }
            if found["store"].outputs[0].token_ids != expected.outputs[0].token_ids:
                raise RuntimeError("the restored prefix gave another answer than the computed one")
            if [found[case].metrics.reuse for case in CASES] != ["none", "radix", "store"]:
                raise RuntimeError("a request did not find the prefix where it was")
            for case, output in found.items():
                figures.times[case].append(1000 * (output.metrics.ttft_s or 0.0))
            last = len(figures.times["store"]) == rounds or time.monotonic() - begun > most_s
            if last:
                figures.gaps = gaps(llm, large)
    return figures


def gaps(llm: LLM, large: list[int]) -> dict[str, float]:
    """The longest time without a token of a running stream, in milliseconds, by what else happens."""
    other = _ids(random.Random(4), len(large))

    def ask(expected: str) -> None:
        output = llm.submit([*large, 5], SamplingParams(temperature=0, max_tokens=1)).result()
        if output.metrics.reuse != expected:
            raise RuntimeError(f"the prefix came from {output.metrics.reuse!r}, not {expected!r}")

    meanwhile: dict[str, Callable[[], object]] = {
        "nothing else": lambda: None,
        "a record is read": lambda: ask("store"),
        "it is in memory": lambda: ask("radix"),
        "a prefix is kept": lambda: llm.save_prefix(other),
    }
    found = {}
    _ask(llm, other)  # it is in the blocks: what is measured is the copying
    for what, action in meanwhile.items():
        stream, stamps = llm.submit(_ids(random.Random(3), END), _long()), list[float]()
        reader = threading.Thread(target=_note, args=(stream, stamps))
        reader.start()
        while len(stamps) < 5:
            time.sleep(0.001)
        first = len(stamps)
        action()
        reader.join()
        found[what] = 1000 * max(b - a for a, b in itertools.pairwise(stamps[first - 1 :]))
    return found


def windowed(folder: str, target: Path) -> str:
    """The same Llama with a sliding window in every layer, which is what Mistral is."""
    shutil.copytree(folder, target)
    config = json.loads((target / "config.json").read_text(encoding="utf-8"))
    config |= {"model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": WINDOW}
    (target / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return str(target)


def _long() -> SamplingParams:
    return SamplingParams(temperature=0, max_tokens=STREAM, ignore_eos=True)


def _note(stream: Generation, stamps: list[float]) -> None:
    for _ in stream:
        stamps.append(time.monotonic())


def _ids(draw: random.Random, count: int) -> list[int]:
    return [draw.randrange(300, 30_000) for _ in range(count)]


def _ask(llm: LLM, prompt: list[int]) -> RequestOutput:
    return llm.generate([prompt], PARAMS, use_tqdm=False)[0]


def main(arguments: list[str]) -> int:
    """Print the table."""
    from benchmarks.comparison.models import random_folder

    parser = argparse.ArgumentParser(prog="benchmarks/prefix_store", allow_abbrev=False)
    parser.add_argument("model", nargs="?", metavar="FOLDER", help="of another model")
    parser.add_argument("--out", type=Path, metavar="FILE", help="the figures as JSON too, for scripts/performance")
    given = parser.parse_args(arguments)
    folder = given.model or str(random_folder())
    run = Begun(prefix_store_page.PART.kind, ["benchmarks/prefix_store", *arguments])
    with tempfile.TemporaryDirectory() as place:
        figures = measure(folder, str(Path(place, "store")))
        window = Figures()
        if given.model is None:
            other = windowed(folder, Path(place, "windowed"))
            window = measure(other, str(Path(place, "other")), WINDOW_ROUNDS, WINDOW_S)
    _print(figures, f"prompt {PREFIX} + {END} tokens")
    if given.model is None:
        _print(window, f"the same with a sliding window of {WINDOW} tokens in every layer")
    print(f"longest time without a token of a running stream (ms); the record has {figures.size:,.1f} MiB")
    for what, value in figures.gaps.items():
        print(f"  {what:<17} {value:8.1f}")
    if given.out is not None:
        sizes = {"prefix": PREFIX, "own": END, "window": WINDOW, "record_mib": figures.size}
        run.write(given.out, {"times": figures.times, "windowed": window.times, "gaps": figures.gaps, **sizes})
    return 0


def _print(figures: Figures, what: str) -> None:
    middle = {case: statistics.median(values) for case, values in figures.times.items()}
    print(f"time to the first token, {what}, median of {len(figures.times['store'])} (ms)")
    for case in CASES:
        share, ratio = middle[case] / middle["cold"], middle[case] / middle["in memory"]
        print(f"  {case:<10} {middle[case]:8.1f}   {share:6.1%} of cold   {ratio:5.2f}x of in memory")
