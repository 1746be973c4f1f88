"""transformers `generate` with a static cache and a compiled forward pass."""

from __future__ import annotations

from .peer import Setup
from .peer_generate import Generate


def open_peer(setup: Setup) -> Generate:
    """Load it. On a CPU transformers compiles only when told that every device is meant."""
    from transformers import CompileConfig

    compiling = CompileConfig(mode="default", dynamic=True, fullgraph=False)
    setattr(compiling, "_compile_all_devices", True)  # noqa: B010  a field without a public name, typed as None
    return Generate(setup, cache_implementation="static", compile_config=compiling)
