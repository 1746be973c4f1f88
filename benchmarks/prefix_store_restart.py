"""Time to the first token after a long prefix: computed, in the engine's blocks, and read from the prefix store."""

from __future__ import annotations

import random
import statistics
import tempfile

from yaie_engine import LLM, RequestOutput, SamplingParams

PREFIX, END, ROUNDS = 1024, 32, 5
PARAMS = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)


def measure(folder: str) -> dict[str, list[float]]:
    """Milliseconds to the first token by case, one value for each round. Raises RuntimeError where answers differ."""
    ids = random.Random(1)
    prefix = [ids.randrange(300, 30_000) for _ in range(PREFIX)]
    ends = [[ids.randrange(300, 30_000) for _ in range(END)] for _ in range(3)]
    times: dict[str, list[float]] = {"cold": [], "in memory": [], "store": []}
    with tempfile.TemporaryDirectory() as store:
        with LLM(folder, dtype="bfloat16", prefix_store=store) as llm:
            llm.save_prefix(prefix)
        for _ in range(ROUNDS):
            with LLM(folder, dtype="bfloat16", prefix_store=store) as llm:
                _ask(llm, ends[2] * 4)  # the first forward of a process is never the one to measure
                restored = _ask(llm, [*prefix, *ends[0]])
                cached = _ask(llm, [*prefix, *ends[1]])
            with LLM(folder, dtype="bfloat16") as llm:
                _ask(llm, ends[2] * 4)
                cold = _ask(llm, [*prefix, *ends[0]])
            if restored.outputs[0].token_ids != cold.outputs[0].token_ids:
                raise RuntimeError("the restored prefix gave another answer than the computed one")
            if (restored.metrics.reuse, cached.metrics.reuse, cold.metrics.reuse) != ("store", "radix", "none"):
                raise RuntimeError("a request did not find the prefix where it was")
            for case, output in (("cold", cold), ("in memory", cached), ("store", restored)):
                times[case].append(_ttft(output))
    return times


def _ask(llm: LLM, prompt: list[int]) -> RequestOutput:
    return llm.generate([prompt], PARAMS, use_tqdm=False)[0]


def _ttft(output: RequestOutput) -> float:
    return 1000 * (output.metrics.ttft_s or 0.0)


def main(arguments: list[str]) -> int:
    """Print the table."""
    from benchmarks.comparison.models import random_folder

    times = measure(arguments[0] if arguments else str(random_folder()))
    middle = {case: statistics.median(values) for case, values in times.items()}
    print(f"time to the first token, prompt {PREFIX} + {END} tokens, median of {ROUNDS} (ms)")
    for case, value in middle.items():
        print(
            f"  {case:<10} {value:8.1f}   {value / middle['cold']:6.1%} of cold   {value / middle['in memory']:5.2f}x"
        )
    return 0
