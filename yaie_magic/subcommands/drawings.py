"""`%yaie tree | blocks | timeline`: the radix tree, the block tables and the steps, drawn or live."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from yaie_engine.errors import RequestError
from yaie_magic.options import Option, UsageProblem, option

from .entry import ENGINE, Call, Subcommand
from .names import find_record, request_ids_of
from .timeline import TIMELINE

if TYPE_CHECKING:
    from yaie_widgets import Drawing
    from yaie_widgets.live.source import Source
    from yaie_widgets.live.step_view import StepView

FORMATS = ("svg", "png", "dot", "text")
FORMAT = option("format", "the form to show [default: svg]", kind="choice", choices=FORMATS)
REQUEST = option("request", "mark the path of this request: an id, or the name of a result", metavar="NAME")
DEPTH = option("depth", "levels below the root to draw", kind="int", metavar="N")
LIVE = option("live", "a view that follows the engine, where there is a notebook to show it", kind="flag")


def _tree(call: Call) -> Any:
    from yaie_widgets import draw_radix_tree

    chosen = _chosen(call)
    if not isinstance(call.given.get("depth", 0), int):
        raise UsageProblem(f"tree: --depth {call.given['depth']!r} is not a number")
    if "depth" in call.given:
        chosen["depth"] = call.given["depth"]
    snapshot = call.engine.llm.snapshot()
    drawing = draw_radix_tree(snapshot, **chosen)
    if not _is_live(call):
        return drawing
    if snapshot.states:
        print("This engine keeps whole states in place of shared blocks; they are drawn as they are now, not live.")
        return drawing
    from yaie_widgets import RadixTreeExplorer
    from yaie_widgets.live.source import source_of

    view = RadixTreeExplorer(source_of(call.engine.llm), request=_request_id(call), depth=chosen.get("depth"))
    return _show(view, drawing, partial(draw_radix_tree, **chosen))


def _blocks(call: Call) -> Any:
    from yaie_widgets import draw_block_table

    chosen = _chosen(call)
    drawing = draw_block_table(call.engine.llm.snapshot(), **chosen)
    if not _is_live(call):
        return drawing
    from yaie_widgets import KVBlockMap
    from yaie_widgets.live.source import source_of

    view = KVBlockMap(source_of(call.engine.llm), request=_request_id(call))
    return _show(view, drawing, partial(draw_block_table, **chosen))


def _is_live(call: Call) -> bool:
    """Whether a live view was asked for and can be shown; elsewhere the drawing says the same."""
    from yaie_magic.display import in_notebook

    return bool(call.given.get("live")) and in_notebook(call.shell)


def _show(view: StepView, drawing: Drawing, draw: Callable[..., Drawing]) -> None:
    """The view, and its drawing for those who have no kernel, which is made anew from what the view has seen."""
    from yaie_widgets.live.show import show

    source = view.source
    show(view, drawing._repr_mimebundle_(), lambda: _drawn_again(source, draw)._repr_mimebundle_())


def _drawn_again(source: Source, draw: Callable[..., Drawing]) -> Drawing:
    from yaie_widgets.live.recorded import snapshot_of, tape_of

    recording = source.recording()
    snapshot = snapshot_of(recording, tape_of(recording))
    try:
        return draw(snapshot)
    except RequestError:  # the request that was to be marked has ended meanwhile
        return draw(snapshot, request=None)


def _chosen(call: Call) -> dict[str, Any]:
    """The options both drawings take."""
    chosen: dict[str, Any] = {"format": call.given.get("format", "svg")}
    request = _request_id(call)
    if request is not None:
        chosen["request"] = find_record(call.engine.llm, request) or request  # an ended one is drawn from its record
    return chosen


def _request_id(call: Call) -> str | None:
    """The one request that `--request` names."""
    if "request" not in call.given:
        return None
    ids = request_ids_of(call.shell, call.given["request"])
    if len(ids) > 1:
        raise UsageProblem(f"--request {call.given['request']} holds {len(ids)} requests; choose {', '.join(ids)}")
    return ids[0]


def _options(*own: Option) -> tuple[Option, ...]:
    return (LIVE, *own, REQUEST, FORMAT, ENGINE)


SUBCOMMANDS = (
    Subcommand("tree", "the radix tree of cached prefixes", _tree, lambda: _options(DEPTH)),
    Subcommand("blocks", "which request holds which KV blocks", _blocks, _options),
    TIMELINE,
)
