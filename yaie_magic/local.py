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
    llm = engine.llm
    if engine.elsewhere is not None:
        raise UsageProblem(f"{purpose}: engine {engine.name!r} runs elsewhere, and this needs one in this kernel")
    if TYPE_CHECKING:
        assert isinstance(llm, LLM)
    return llm
