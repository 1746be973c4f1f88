"""`%yaie dashboard`: the engine at a glance, live in a notebook, drawn elsewhere."""

from __future__ import annotations

from typing import Any

from yaie_magic.options import Option, option

from .entry import ENGINE, Call, Subcommand
from .followed import followed

FORMAT = option("format", "a drawing instead of the live view", kind="choice", choices=("svg", "text"))
SAVE = option("save", "write the drawing to this file (.svg, .html or .txt) instead", metavar="FILE")


def _dashboard(call: Call) -> Any:
    from yaie_magic.display import in_notebook
    from yaie_widgets import draw_dashboard
    from yaie_widgets.live.memory import with_memory

    source = followed(call)
    drawing = draw_dashboard(with_memory(source.recording(), source.memory), format=call.given.get("format", "svg"))
    if "save" in call.given:
        print(f"Saved to {drawing.save(call.given['save'])}.")
    if call.given.keys() & {"format", "save"} or not in_notebook(call.shell):
        return drawing
    from yaie_widgets import EngineDashboard
    from yaie_widgets.live.show import show

    show(
        EngineDashboard(source),
        drawing._repr_mimebundle_(),
        lambda: draw_dashboard(with_memory(source.recording(), source.memory))._repr_mimebundle_(),
    )
    return None


def _options() -> tuple[Option, ...]:
    return (FORMAT, SAVE, ENGINE)


SUBCOMMANDS = (Subcommand("dashboard", "the engine at a glance, step by step", _dashboard, _options),)
