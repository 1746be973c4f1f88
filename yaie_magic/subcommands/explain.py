"""`%yaie explain`: a request, a block or a node in words and numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from yaie_magic.explain import explain_request_of
from yaie_magic.options import UsageProblem
from yaie_widgets.figures import ranges

from .entry import ENGINE, Call, Subcommand
from .names import results_of

if TYPE_CHECKING:
    from yaie_engine.serving import Engine

HOW = "say what: %yaie explain NAME (a result or request id), %yaie explain block N, %yaie explain node ID"


def _explain(call: Call) -> Any:
    words = call.given.get("what") or ["_yaie"]
    if words[0] in ("block", "node") and len(words) == 1 and words[0] not in call.shell.user_ns:
        raise UsageProblem(f"explain: {words[0]} needs a number: {_range(call.engine.llm, words[0])}")
    if words[0] in ("block", "node") and len(words) == 2:
        from yaie_widgets import explain_block, explain_node

        llm = call.engine.llm
        show = explain_block if words[0] == "block" else explain_node
        return show(llm.snapshot(), _number(words[1], words[0]), decode=lambda ids: llm.detokenize(list(ids)))
    if len(words) != 1:
        raise UsageProblem(f"explain: {HOW}")
    if words == ["_yaie"] and "_yaie" not in call.shell.user_ns:
        raise UsageProblem(f"explain: no cell has run yet; {HOW}")
    results = {each.request_id: each for each in results_of(call.shell, words[0])}
    if len(results) > 1:
        raise UsageProblem(f"explain: {words[0]} holds {len(results)} requests; say which: {', '.join(results)}")
    if results and "engine" not in call.given:
        return next(iter(results.values())).explain()
    return explain_request_of(call.engine.llm, next(iter(results), words[0]))


def _range(llm: Engine, kind: str) -> str:
    """Which numbers there are."""
    snapshot = llm.snapshot()
    if kind == "block":
        if not snapshot.blocks.total:
            return f"the pool has no blocks while the engine is {snapshot.state}"
        return f"%yaie explain block N, N from 0 to {snapshot.blocks.total - 1}"
    ids = sorted(node.id for node in snapshot.tree)
    return f"%yaie explain node ID, one of {ranges(ids)}" if ids else "the tree is empty"


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
