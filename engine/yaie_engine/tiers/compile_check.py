"""Compiles a model's forward at load, and holds what was compiled against the forward as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from yaie_engine.compiled import CompiledForward, Compiler, cause
from yaie_engine.kv_cache import GrowingKVCache
from yaie_engine.models.hub import Progress
from yaie_engine.models.weights import first_line
from yaie_engine.plan import ScheduledSequence, StepPlan

from .flat import FlatTier
from .forward import ForwardCall
from .measure import BLOCK_SIZE, NUM_BLOCKS, probe_sequences, row_errors
from .probe import TOLERANCE, ProbeResult

LENGTHS = (13, 9, 6)
COMPILED = ({0: 5, 1: -4}, {0: 1, 1: 1}, {0: 1})
"""Steps that need each graph once: tokens by sequence; where negative, a chunk whose logits nobody wants."""
AGAIN = ({0: 4, 1: 2, 2: -3}, {0: 1, 1: 1, 2: 1}, {2: 1})
"""The same with other sizes: they must not need another one."""


def compile_model(
    model: Any, result: ProbeResult, report: Progress, compiler: Compiler | None = None
) -> tuple[CompiledForward | None, str]:
    """The compiled forward, warm; or None and why there is none. Takes as long as a compiler takes for three graphs."""
    call = ForwardCall(model)
    if result.tier != "flat":
        return None, f"tier {result.tier} runs sequences one by one"
    if not call.takes_positions:
        return None, "the model takes no positions"
    compiled = CompiledForward(model, call.picks_rows, compiler)
    try:
        why_not = _checked(model, compiled, result, report)
    except Exception as error:  # no C++ compiler, code that cannot be traced, an operation that cannot be compiled
        why_not = f"{type(cause(error)).__name__}: {first_line(cause(error))}"
    except BaseException:
        compiled.close()
        raise
    if why_not:
        compiled.close()
        return None, why_not
    return compiled, ""


def _checked(model: Any, compiled: CompiledForward, result: ProbeResult, report: Progress) -> str:
    """Why what was compiled cannot be used; "" when it can."""
    weight = next(model.parameters())
    expected = list(_run(model, None, weight, lambda number: None))

    def before(number: int) -> None:
        if number < len(COMPILED):
            report("compiling", number / len(COMPILED))
        elif number == len(COMPILED):
            compiled.settle()

    found = list(_run(model, compiled, weight, before))
    if compiled.failure:
        return compiled.failure
    errors = torch.cat([row_errors(mine, plain) for mine, plain in zip(found, expected, strict=True)])
    usual = float(errors.median())
    if not usual <= max(2 * result.usual, TOLERANCE[weight.dtype]):
        return f"logits differ by {usual:.1e} of their spread"
    return ""


def _run(
    model: Any, compiled: CompiledForward | None, weight: Tensor, before: Callable[[int], None]
) -> Iterator[Tensor]:
    """The logits of every step, in a cache of its own."""
    tier = FlatTier(model, GrowingKVCache(NUM_BLOCKS, BLOCK_SIZE, weight.dtype, weight.device))
    tier.compiled = compiled
    sequences = probe_sequences(int(model.get_input_embeddings().weight.shape[0]), LENGTHS)
    done = [0] * len(sequences)
    try:
        for number, step in enumerate((*COMPILED, *AGAIN)):
            before(number)
            plan = StepPlan(number + 1)
            for i, count in step.items():
                start, samples = done[i], count > 0
                done[i] += abs(count)
                plan.batch.append(ScheduledSequence(sequences[i], start, abs(count), start, "prefill", samples))
            with torch.inference_mode():
                output = tier.run(plan)
            yield output.logits
    finally:
        tier.close()
