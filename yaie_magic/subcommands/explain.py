"""`%yaie explain`: a request, a block or a node in words and numbers."""

from __future__ import annotations

from typing import Any

from yaie_magic.explain import explain_request_of
from yaie_magic.options import UsageProblem

from .entry import ENGINE, Call, Subcommand
from .names import results_of

HOW = "say what: %yaie explain NAME (a result or request id), %yaie explain block N, %yaie explain node ID"


def _explain(call: Call) -> Any:
    words = call.given.get("what") or ["_yaie"]
    if words[0] in ("block", "node") and len(words) == 2:
        from yaie_widgets import explain_block, explain_node

        llm = call.engine.llm
        show = explain_block if words[0] == "block" else explain_node
        return show(llm.snapshot(), _number(words[1], words[0]), decode=lambda ids: llm.detokenize(list(ids)))
    if len(words) != 1:
        raise UsageProblem(f"explain: {HOW}")
    if words == ["_yaie"] and "_yaie" not in call.shell.user_ns:
        raise UsageProblem(f"explain: no cell has run yet; {HOW}")
    results = results_of(call.shell, words[0])
    if results and "engine" not in call.given:
        return results[0].explain()
    return explain_request_of(call.engine.llm, results[0].request_id if results else words[0])


def _number(word: str, kind: str) -> int:
    try:
        return int(word)
    except ValueError:
        raise UsageProblem(f"explain: {kind} {word!r} is not a number") from None


SUBCOMMANDS = (
    Subcommand(
        "explain",
        "what happened to a request, or who holds a block or node",
        _explain,
        lambda: (ENGINE,),
        (("what", "*", "NAME, block N, or node ID [default: the newest result]"),),
        lambda: ("block", "node", "_yaie"),
    ),
)
