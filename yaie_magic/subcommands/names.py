"""From what a person calls a request to the engine's record of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from yaie_magic.completion import Completion
from yaie_magic.options import UsageProblem

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from yaie_engine import LLM
    from yaie_engine.record import RequestRecord


def request_id_of(shell: InteractiveShell, name: str) -> str:
    """The request id behind the name of a result in the notebook; any other word is taken for an id itself.

    Raises:
        UsageProblem: the name belongs to something that is no result.
    """
    if name not in shell.user_ns:
        return name
    value = shell.user_ns[name]
    if isinstance(value, list) and value:
        value = value[0]
    if not isinstance(value, Completion):
        raise UsageProblem(f"{name} is a {type(value).__name__}, not the result of a cell")
    return value.request_id


def find_record(llm: LLM, request_id: str) -> RequestRecord | None:
    """The record of an ended request; None while it runs, or when it is not remembered."""
    return next((record for record in llm.history() if record.request_id == request_id), None)
