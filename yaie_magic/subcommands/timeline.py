"""`%yaie timeline`: what the scheduler did in each step, drawn, or written as a trace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from yaie_magic.options import Option, UsageProblem, option

from .entry import ENGINE, Call, Subcommand
from .names import request_ids_of

if TYPE_CHECKING:
    from yaie_engine import LLM

STEPS = option(
    "steps", "how many steps to draw, the newest unless --from says otherwise [default: 60]", kind="int", metavar="N"
)
FROM = option("from", "the first step to draw", kind="int", metavar="STEP")
REQUEST = option("request", "this request alone: an id, or the name of a result", metavar="NAME")
FORMAT = option("format", "the form to show [default: svg]", kind="choice", choices=("svg", "text"))
SAVE = option("save", "also write the drawing to this file (.svg, .html or .txt)", metavar="FILE")
TRACE = option("trace", "write a Chrome trace of all recorded steps instead; ui.perfetto.dev opens it", metavar="FILE")
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
        budget=_budget(llm),
        decode=lambda ids: llm.detokenize(list(ids)),
        **chosen,
    )
    if "save" in call.given:
        print(f"Saved to {drawing.save(call.given['save'])}.")
    return drawing


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


def _budget(llm: LLM) -> int | None:
    """The most tokens of one step: what the engine works with, since the configuration may leave it open."""
    engine = getattr(llm, "_engine", None)
    return engine.scheduler.limits.max_num_batched_tokens if engine else llm.config.max_num_batched_tokens


def _options() -> tuple[Option, ...]:
    return (STEPS, FROM, REQUEST, FORMAT, SAVE, TRACE, ENGINE)


TIMELINE = Subcommand("timeline", "what the scheduler did in each step, for each request", _timeline, _options)
