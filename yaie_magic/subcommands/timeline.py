"""`%yaie timeline`: what the scheduler did in each step: live in a notebook, drawn, or written as a trace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from yaie_magic.options import Option, UsageProblem, option

from .entry import ENGINE, Call, Subcommand
from .names import request_ids_of

if TYPE_CHECKING:
    from yaie_widgets import Timeline

STEPS = option(
    "steps", "draw so many steps, the newest unless --from says otherwise [default: 60]", kind="int", metavar="N"
)
FROM = option("from", "draw from this step on", kind="int", metavar="STEP")
REQUEST = option("request", "draw this request alone: an id, or the name of a result", metavar="NAME")
FORMAT = option("format", "a drawing instead of the live view", kind="choice", choices=("svg", "text"))
SAVE = option("save", "write the drawing to this file (.svg, .html or .txt), too", metavar="FILE")
TRACE = option("trace", "write a Chrome trace of all recorded steps instead; ui.perfetto.dev opens it", metavar="FILE")
DRAWN = {"steps", "from", "request", "format", "save"}
"""Who gives one of these wants the drawing."""
ALL_ROWS = 1_000_000


def _timeline(call: Call) -> Any:
    chosen, llm = _chosen(call), call.engine.llm
    # In this order, what ended before the snapshot is in the tape or the history.
    recorded = llm.snapshot(), llm.tape(), llm.history()
    if "trace" in call.given:
        return _trace(call.given["trace"], recorded, chosen)
    from yaie_widgets import draw_timeline

    drawing = draw_timeline(
        *recorded,
        format=call.given.get("format", "svg"),
        budget=llm.max_num_batched_tokens,
        decode=lambda ids: llm.detokenize(list(ids)),
        **chosen,
    )
    if "save" in call.given:
        print(f"Saved to {drawing.save(call.given['save'])}.")
    return drawing if call.given.keys() & DRAWN else _live(call, drawing)


def _live(call: Call, drawing: Timeline) -> Timeline | None:
    """The view that follows the engine, where there is a notebook to show it; elsewhere the drawing says the same."""
    from yaie_magic.display import in_notebook

    if not in_notebook(call.shell):
        return drawing
    from yaie_widgets import SchedulerTimeline
    from yaie_widgets.live.replay_twin import draw_replay
    from yaie_widgets.live.show import show
    from yaie_widgets.live.source import source_of

    source = source_of(call.engine.llm)
    show(
        SchedulerTimeline(source),
        drawing._repr_mimebundle_(),
        lambda: draw_replay(source.recording()).timeline._repr_mimebundle_(),
    )
    return None


def _trace(path: str, recorded: Any, chosen: dict[str, Any]) -> None:
    """Write every recorded step unless options choose some."""
    from yaie_widgets import save_trace
    from yaie_widgets.timeline_model import timeline_view
    from yaie_widgets.trace import trace_words

    every = max(1, len(recorded[0].steps))
    view = timeline_view(*recorded, **{"steps": every, "max_rows": ALL_ROWS, **chosen})
    print(trace_words(view, save_trace(view, path, recorded[2])))


def _chosen(call: Call) -> dict[str, Any]:
    chosen: dict[str, Any] = {}
    for name, field in (("steps", "steps"), ("from", "first")):
        if name in call.given:
            if not isinstance(call.given[name], int):
                raise UsageProblem(f"timeline: --{name} {call.given[name]!r} is not a number")
            chosen[field] = call.given[name]
    if "request" in call.given:
        ids = request_ids_of(call.shell, call.given["request"])
        if len(ids) > 1:
            raise UsageProblem(f"--request {call.given['request']} holds {len(ids)} requests; choose {', '.join(ids)}")
        chosen["request"] = ids[0]
    return chosen


def _options() -> tuple[Option, ...]:
    return (STEPS, FROM, REQUEST, FORMAT, SAVE, TRACE, ENGINE)


TIMELINE = Subcommand("timeline", "what the scheduler did in each step, for each request", _timeline, _options)
