"""`%yaie inspect`: an answer token by token, with what else might have been written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from yaie_magic.completion import Completion
from yaie_magic.options import UsageProblem, option
from yaie_magic.session import session

from .entry import ENGINE, Call, Subcommand
from .names import find_record, results_of

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from yaie_magic.inspector import Inspector

CHOICE = option("choice", "which one, where NAME holds several (1 is the first)", kind="int", metavar="N")
ENTROPY = option("entropy", "colour by entropy (what it is at least) instead of probability", kind="flag")


def _inspect(call: Call) -> Any:
    name = call.given.get("name", "_yaie")
    colour = "entropy" if call.given.get("entropy") else "probability"
    results = results_of(call.shell, name) or _known_as(call, name)
    if results:
        return results[_place(call, name, len(results))].inspect(colour)
    if name == "_yaie":
        raise UsageProblem("inspect: no cell has run yet; say what: %yaie inspect NAME (a result or request id)")
    return _from_history(call, name, colour)


def _from_history(call: Call, name: str, colour: str) -> Inspector:
    from yaie_magic.inspector import inspect_record

    llm = call.engine.llm
    record = find_record(llm, name)
    if record is not None:
        return inspect_record(record, _place(call, name, len(record.texts)), llm, colour)
    if name in llm.running():
        raise UsageProblem(f"inspect: request {name} is still running; inspect it when it has ended")
    from yaie_engine.validation import did_you_mean

    known = [each.request_id for each in llm.history()] + _names(call.shell)
    hint = did_you_mean(name, known) or "; %yaie history lists the requests that are remembered"
    raise UsageProblem(f"inspect: {name!r} is neither a result nor a request that is remembered{hint}")


def _place(call: Call, name: str, count: int) -> int:
    """Which of `count` results is meant."""
    choice = call.given.get("choice", 1 if count == 1 else None)
    if choice is None:
        raise UsageProblem(f"inspect: {name} holds {count} results; choose one: --choice 1 to {count}")
    if not isinstance(choice, int) or not 1 <= choice <= count:
        raise UsageProblem(f"inspect: --choice {choice}: {name} holds {count}, so 1 to {count}")
    return choice - 1


def _known_as(call: Call, request_id: str) -> list[Completion]:
    """The results of a request that some name of the notebook, or a cell's output, still holds. Engines count from 0
    each: it has to be a request of the engine in question, unless none is loaded."""
    llm = call.engine.llm if session.current is not None else None
    names = call.shell.user_ns
    listed = [
        each
        for value in (*names.values(), *names.get("_oh", {}).values())
        for each in (value if isinstance(value, list) else [value])
        if isinstance(each, Completion) and each.request_id == request_id
    ]
    found = {each.index: each for each in listed if llm is None or each._run.engine is llm}
    return [found[index] for index in sorted(found)]


def _names(shell: InteractiveShell) -> list[str]:
    """The names of results."""
    return [name for name, value in shell.user_ns.items() if isinstance(value, Completion)]


SUBCOMMANDS = (
    Subcommand(
        "inspect",
        "the tokens of a result: probabilities, alternatives, branches",
        _inspect,
        lambda: (CHOICE, ENTROPY, ENGINE),
        (("name", "?", "a result, or a request id [default: the newest result]"),),
        lambda: ("_yaie",),
    ),
)
