"""`%yaie metrics`: the figures that Prometheus would read, of the engine here or of a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from yaie_magic.options import option
from yaie_magic.terminal import printable

from .entry import ENGINE, JSON, Call, Subcommand
from .status import JsonDict

if TYPE_CHECKING:
    from yaie_magic.session import LoadedEngine

RAW = option("raw", "the text itself, in Prometheus' form", kind="flag")


def _metrics(call: Call) -> JsonDict | None:
    from yaie_magic.readings import read_metrics, table

    engine = call.engine
    text = text_of(engine)
    if call.given.get("raw"):
        print("\n".join(map(printable, text.splitlines())))
        return None
    readings = read_metrics(text)
    if call.given.get("json"):
        return JsonDict({reading.label: reading.to_dict() for reading in readings})
    print(printable(f"{engine.model} · metrics"))
    print("\n".join(map(printable, table(readings).splitlines())) or "  The server tells none about its engine.")
    return None


def text_of(engine: LoadedEngine) -> str:
    """The metrics of an engine in Prometheus' text form; of one in this process over all its requests.

    Raises:
        YaieError: the engine is on a server that has none, or does not answer.
    """
    from yaie_magic.aside import aside
    from yaie_magic.local import local_llm
    from yaie_magic.remote import RemoteLLM
    from yaie_magic.server.metrics import of_history

    llm = engine.llm
    if isinstance(llm, RemoteLLM):
        return aside("metrics", lambda: llm.client.get_text("/metrics"))
    return of_history(local_llm(engine, "metrics")).text().decode()


SUBCOMMANDS = (
    Subcommand(
        "metrics",
        "counters and latencies as Prometheus reads them, in one table",
        _metrics,
        lambda: (RAW, JSON, ENGINE),
    ),
)
