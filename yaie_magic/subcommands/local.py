"""What only an engine of this process can do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from yaie_magic.options import UsageProblem

from .entry import Call

if TYPE_CHECKING:
    from yaie_engine import LLM


def local_llm(call: Call, subcommand: str, word: str | None, known: Sequence[str]) -> LLM:
    """The engine of a line, whose first word must be one of `known` if it is there at all.

    Raises:
        UsageProblem: it is another word, or the engine runs elsewhere.
    """
    from yaie_engine import LLM
    from yaie_engine.validation import did_you_mean

    if word is not None and word not in known:
        hint = did_you_mean(word, known) or f"; one of {', '.join(known)}"
        raise UsageProblem(f"{subcommand}: {word!r} is unknown{hint}")
    engine = call.engine
    if not isinstance(engine.llm, LLM):
        raise UsageProblem(
            f"{subcommand}: engine {engine.name!r} runs in another process, and its layers are seen there only; "
            "%yaie load loads one here"
        )
    return engine.llm
