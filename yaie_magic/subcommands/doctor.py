"""`%yaie doctor`."""

from __future__ import annotations

from functools import partial

from yaie_magic.aside import aside
from yaie_magic.session import session
from yaie_magic.terminal import printable

from .entry import JSON, Call, Subcommand
from .status import JsonDict


def _doctor(call: Call) -> JsonDict | None:
    from yaie_engine import LLM
    from yaie_magic.doctor import examine

    here = {name: engine.llm for name, engine in session.engines.items() if isinstance(engine.llm, LLM)}
    loaded = {name: llm for name, llm in here.items() if session.engines[name].alive}
    report = aside("doctor", partial(examine, loaded=loaded))  # it imports torch, which must not be cut short
    if call.given.get("json"):
        return JsonDict(report.to_dict())
    for line in report.to_text().splitlines():
        print(printable(line))
    return None


SUBCOMMANDS = (
    Subcommand("doctor", "what the engine finds on this machine, and whether it works", _doctor, lambda: (JSON,)),
)
