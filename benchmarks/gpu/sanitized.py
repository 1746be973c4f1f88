"""What runs under compute-sanitizer: the lab's smallest cases of every op, once each, held against the reference."""

from __future__ import annotations

import sys
from itertools import chain, product

from yaie_cuda.lab.cases import BUILDERS
from yaie_cuda.lab.request import ModelSizes

from .bench import Bench, GpuBench
from .cascade_cases import cascade
from .op_trial import OpTrial

SIZES = (
    ModelSizes(num_heads=4, num_kv_heads=2, head_dim=64, hidden=128, intermediate=256),
    ModelSizes(dtype="float16", num_heads=4, num_kv_heads=1, head_dim=80, hidden=128, intermediate=256),
)


def run(bench: Bench) -> int:
    """How many cases were run. Raises ValueError for one that is wrong."""
    count = 0
    builders = dict.fromkeys([*chain.from_iterable(BUILDERS.values()), cascade])
    for builder, sizes in product(builders, SIZES):
        for case in builder(sizes):
            trial = OpTrial(case, bench)
            trial.call()
            wrong, _ = trial.wrong(0)
            if wrong:
                raise ValueError(f"{case.op}: {case.title}: {wrong}")
            count += 1
    return count


if __name__ == "__main__":
    print(f"ran {run(GpuBench())} cases", flush=True)
    sys.exit(0)
