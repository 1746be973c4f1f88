"""Whether an engine is one of this process: some things need the model itself, not what a server tells of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .options import UsageProblem

if TYPE_CHECKING:
    from yaie_engine import LLM

    from .session import LoadedEngine


def local_llm(engine: LoadedEngine, purpose: str) -> LLM:
    """The engine, which `purpose` needs in this process.

    Raises:
        UsageProblem: it runs elsewhere.
    """
    from yaie_engine import LLM

    if not isinstance(engine.llm, LLM):
        raise UsageProblem(f"{purpose}: engine {engine.name!r} runs elsewhere, and this needs one in this kernel")
    return engine.llm
