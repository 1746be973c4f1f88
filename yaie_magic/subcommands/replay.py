"""`%yaie replay`: one cursor over timeline, block map and radix tree; runs saved to a file and looked at elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from yaie_magic.options import Option, UsageProblem, option

from .entry import ENGINE, Call, Subcommand

if TYPE_CHECKING:
    from yaie_widgets.live.source import Source

FORMAT = option("format", "the newest step drawn instead of the live view", kind="choice", choices=("svg", "text"))
SAVE = option("save", "write the recording to this file, as JSON, instead of showing it", metavar="FILE")
LOAD = option("load", "show the recording in this file; no engine is needed", metavar="FILE")


def _replay(call: Call) -> Any:
    given = call.given
    if "load" in given and given.keys() & {"engine", "save"}:
        raise UsageProblem("replay: --load shows a file; --engine and --save are about an engine")
    if "save" in given:
        return _save(call)
    source = _source(call)
    recording = source.recording()
    from yaie_magic.display import in_notebook
    from yaie_widgets.live.replay_twin import draw_replay

    drawing = draw_replay(recording)
    if "format" in given or not in_notebook(call.shell):
        if given.get("format") == "text":
            print(drawing.text)
            return None
        return drawing
    from yaie_widgets import Replay
    from yaie_widgets.live.show import show

    show(Replay(source), drawing._repr_mimebundle_(), lambda: draw_replay(source.recording())._repr_mimebundle_())
    return None


def _save(call: Call) -> None:
    """Every step of the recorder, also those that are too many for a page."""
    from yaie_widgets.live.recording_file import save_recording
    from yaie_widgets.live.source import EngineSource

    recording = EngineSource(call.engine.llm, most_entries=float("inf")).recording()
    path = save_recording(recording, call.given["save"])
    steps = len(recording["steps"])
    print(f"Saved {steps:,} step{'s' if steps != 1 else ''} to {path}; %yaie replay --load {path} shows them.")


def _source(call: Call) -> Source:
    """The engine's recording, or that of a file, which is checked before it is used."""
    from yaie_widgets.live.source import FileSource, source_of

    if "load" in call.given:
        from yaie_widgets.live.recording_file import load_recording

        return FileSource(load_recording(call.given["load"]))
    return source_of(call.engine.llm)


def _options() -> tuple[Option, ...]:
    return (SAVE, LOAD, FORMAT, ENGINE)


SUBCOMMANDS = (
    Subcommand("replay", "the recorded steps with one slider: timeline, blocks and tree", _replay, _options),
)
