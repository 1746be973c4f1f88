"""A kernel is exchanged while an engine runs: its tokens change with it, and are the old ones when it is restored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from yaie_cuda import sources
from yaie_engine.kernel_exchange import exchange

from . import solo
from .context import Context

KERNEL = "silu_and_mul"
PRODUCT = "silu * to_float(up.values[i])"


def run(context: Context, folder: Path) -> None:
    """With graphs where there is a GPU: those that were captured with the old kernel must be captured anew."""
    name = "a kernel is exchanged between two steps"
    with context.guarded(name), solo.engine(context, folder) as llm:
        before, at_first = solo.answers(context, llm), captured(llm)
        try:
            exchange(lambda: sources.replace(KERNEL, silent()))
            anew, changed = captured(llm), solo.answers(context, llm)
        finally:
            exchange(lambda: sources.restore([KERNEL]))
        after, at_last = solo.answers(context, llm), captured(llm)
        context.check(f"{name}: the tokens are another kernel's", changed != before, f"{changed} after {before}")
        context.check(f"{name}: restored, they are the old ones", after == before, f"{after} after {before}")
        if not context.tiny:
            each = [set(map(id, graphs.values())) for graphs in (at_first, anew, at_last)]
            fresh = all(each) and not each[0] & each[1] and not each[1] & each[2]
            sizes = [sorted(graphs) for graphs in (at_first, anew, at_last)]
            context.check(f"{name}: graphs are captured anew", fresh and sizes[0] == sizes[1] == sizes[2], str(sizes))


def silent() -> str:
    """The kernel's source with a gate that lets nothing through."""
    text = sources.built_in(KERNEL)
    if PRODUCT not in text:
        raise ValueError(f"{KERNEL}.cu has no {PRODUCT!r} any more")
    return text.replace(PRODUCT, f"0.0f * {PRODUCT}")


def captured(llm: Any) -> dict[int, Any]:
    """The graphs by batch size; none where steps are not captured."""
    graphs = llm._engine.runner._tier.graphs
    return {} if graphs is None else dict(graphs._graphs)
