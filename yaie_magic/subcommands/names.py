"""From what a person calls a request to the engine's record of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from yaie_magic.completion import Completion
from yaie_magic.options import UsageProblem

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from yaie_engine.record import RequestRecord
    from yaie_engine.serving import Engine


def results_of(shell: InteractiveShell, name: str) -> list[Completion]:
    """The completions behind a name in the notebook; none when the name is not one of the notebook's.

    Raises:
        UsageProblem: the name belongs to something that is no result.
    """
    if name not in shell.user_ns:
        return []
    value = shell.user_ns[name]
    found = value if isinstance(value, list) else [value]
    if not found or not all(isinstance(each, Completion) for each in found):
        raise UsageProblem(f"{name} is a {type(value).__name__}, not the result of a cell")
    return list(found)


def request_ids_of(shell: InteractiveShell, name: str) -> list[str]:
    """The request ids behind the name of a result, without repeats; any other word is taken for an id itself."""
    return list(dict.fromkeys(each.request_id for each in results_of(shell, name))) or [name]


def find_record(llm: Engine, request_id: str) -> RequestRecord | None:
    """The record of an ended request; None while it runs, or when it is not remembered."""
    return next((record for record in llm.history() if record.request_id == request_id), None)
