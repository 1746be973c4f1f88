"""`%yaie insights`: what the recorded run means, in findings with their figures."""

from __future__ import annotations

import json
from typing import Any

from yaie_magic.options import option

from .entry import ENGINE, Call, Subcommand

JSON = option("json", "as JSON; the value is a list of dicts", kind="flag")


class JsonList(list[dict[str, Any]]):
    """A list that shows as JSON text."""

    def __repr__(self) -> str:
        return json.dumps(self, indent=2)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))


def _insights(call: Call) -> Any:
    from yaie_widgets.insights import find_insights

    llm = call.engine.llm
    # Snapshot before history: a request that ends between the two is then in the history alone, never in neither.
    snapshot, tape, history = llm.snapshot(), llm.tape(), llm.history()
    found = find_insights(snapshot, tape, history, llm.config, decode=lambda ids: llm.detokenize(list(ids)))
    return JsonList(found.to_list()) if call.given.get("json") else found


SUBCOMMANDS = (
    Subcommand(
        "insights",
        "what binds the run, what was computed twice, which settings contradict each other",
        _insights,
        lambda: (JSON, ENGINE),
    ),
)
