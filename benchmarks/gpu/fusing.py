"""How an engine runs: its tier, its attention, and which modules of the model run as fused kernels."""

from __future__ import annotations

import re
from typing import Any

from .context import Context

FACT = "how it runs: "
NORMS = {"llama": 2, "qwen3": 4}
"""RMSNorms of a layer; one more follows the last layer."""


def counts(reason: str) -> dict[str, int]:
    """The engine's words "fused: rms_norm 7, silu 3, not rotary 3 (why)" as counts; empty where nothing is fused."""
    _, _, said = reason.partition("fused: ")
    return {kind: int(count) for kind, count in re.findall(r"(?:^|, )((?:not )?\w+) (\d+)", said)}


def expected(kind: str, layers: int) -> dict[str, int]:
    """What has to be fused in a "llama" or "qwen3" of `layers` layers."""
    # Of the two additions of a layer, the model's very first one makes the tensor that the others are made in.
    return {
        "rms_norm": NORMS[kind] * layers + 1,
        "residual": 2 * layers - 1,
        "silu": layers,
        "rotary": layers,
        "rotary_write": layers,
    }


def note(context: Context, name: str, llm: Any, kind: str, layers: int, kernels: bool = True) -> None:
    """Record how `llm` runs. With kernels all that can be fused must be."""
    info = llm.snapshot().model
    fused = counts(info.reason)
    context.fact(
        FACT + name,
        {"tier": info.tier, "attention": info.attention_backend, "fused": fused, "reason": info.reason},
    )
    if kernels:
        wanted = expected(kind, layers)
        backend = "emulated" if context.tiny else "cuda"
        ok = info.attention_backend == backend and wanted.items() <= fused.items()
        said = words(info.attention_backend, fused)
        context.check(f"attention, norms, gated MLPs and rotation are kernels, {name}", ok, said)


def words(attention: str, fused: dict[str, int]) -> str:
    """ "cuda attention, fused rms_norm 7, silu 3, rotary 3"."""
    listed = ", ".join(f"{kind} {count}" for kind, count in fused.items())
    return f"{attention} attention, fused {listed or 'nothing'}"


def lines(facts: dict[str, Any]) -> list[str]:
    """For people: one line per engine, of the facts of a whole run."""
    found = {name.removeprefix(FACT): value for name, value in facts.items() if name.startswith(FACT)}
    return [f"{name}: {words(value['attention'], value['fused'])}" for name, value in found.items()]
