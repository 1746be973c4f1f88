"""`%yaie tree | blocks | timeline`: the radix tree, the block tables and the steps, drawn."""

from __future__ import annotations

from typing import Any

from yaie_magic.options import Option, UsageProblem, option

from .entry import ENGINE, Call, Subcommand
from .names import find_record, request_ids_of
from .timeline import TIMELINE

FORMATS = ("svg", "png", "dot", "text")
FORMAT = option("format", "the form to show [default: svg]", kind="choice", choices=FORMATS)
REQUEST = option("request", "mark the path of this request: an id, or the name of a result", metavar="NAME")
DEPTH = option("depth", "levels below the root to draw", kind="int", metavar="N")


def _tree(call: Call) -> Any:
    from yaie_widgets import draw_radix_tree

    chosen = _chosen(call)
    if not isinstance(call.given.get("depth", 0), int):
        raise UsageProblem(f"tree: --depth {call.given['depth']!r} is not a number")
    if "depth" in call.given:
        chosen["depth"] = call.given["depth"]
    return draw_radix_tree(call.engine.llm.snapshot(), **chosen)


def _blocks(call: Call) -> Any:
    from yaie_widgets import draw_block_table

    return draw_block_table(call.engine.llm.snapshot(), **_chosen(call))


def _chosen(call: Call) -> dict[str, Any]:
    """The options both drawings take."""
    chosen: dict[str, Any] = {"format": call.given.get("format", "svg")}
    if "request" in call.given:
        ids = request_ids_of(call.shell, call.given["request"])
        if len(ids) > 1:
            raise UsageProblem(f"--request {call.given['request']} holds {len(ids)} requests; choose {', '.join(ids)}")
        chosen["request"] = find_record(call.engine.llm, ids[0]) or ids[0]  # an ended one is drawn from its record
    return chosen


def _options(*own: Option) -> tuple[Option, ...]:
    return (*own, REQUEST, FORMAT, ENGINE)


SUBCOMMANDS = (
    Subcommand("tree", "the radix tree of cached prefixes", _tree, lambda: _options(DEPTH)),
    Subcommand("blocks", "which request holds which KV blocks", _blocks, _options),
    TIMELINE,
)
