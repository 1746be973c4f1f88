"""Part "ops": attention at full size, draws in bulk, every op against its reference in float64, from a graph too."""

from __future__ import annotations

from collections import defaultdict

from . import large_checks, sampling_checks, swap_checks
from .context import Context
from .op_cases import cases
from .op_trial import try_case

SPARE_S = 4.0


def run(context: Context) -> None:
    """The large ones; then case by case until the time is up, with one line per op that says how many were right."""
    large_checks.run(context)
    sampling_checks.run(context)
    swap_checks.run(context)
    tried: dict[str, list[float]] = defaultdict(list)
    wrong: dict[str, list[str]] = defaultdict(list)
    left_out = 0
    for case in cases(context.tiny, context.quick):
        if context.left < SPARE_S and not context.tiny:
            left_out += 1
            continue
        try:
            what, error = try_case(case, context.bench)
        except Exception as failure:  # whatever a kernel raises is the finding
            what, error = f"{type(failure).__name__}: {(str(failure).splitlines() or [''])[0][:200]}", float("inf")
        tried[case.op].append(error)
        if what:
            wrong[case.op].append(f"{case.title}: {what}")
            print(f"{case.op}: {case.title}: {what}", flush=True)
    for op, errors in tried.items():
        good = len(errors) - len(wrong[op])
        detail = f"{good} of {len(errors)} cases, the worst at {max(errors):.2f} of the bound"
        context.check(f"{op} equals the reference", not wrong[op], "; ".join([detail, *wrong[op][:2]]))
    if left_out:
        context.skip("some cases of ops", f"{left_out} were left when the time was up")
