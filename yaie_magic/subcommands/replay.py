"""`%yaie replay`: one cursor over timeline, block map and radix tree; runs saved to a file and looked at elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from yaie_magic.options import Option, UsageProblem, option

from .entry import ENGINE, Call, Subcommand
from .followed import followed

if TYPE_CHECKING:
    from yaie_widgets.live.source import Source

FORMAT = option("format", "the newest step drawn instead of the live view", kind="choice", choices=("svg", "text"))
SAVE = option("save", "write the recording to this file (JSON, gzip) instead of showing it", metavar="FILE")
FORCE = option("force", "with --save: write over a file that is there", kind="flag")
LOAD = option("load", "show the recording in this file; no engine is needed", metavar="FILE")


def _replay(call: Call) -> Any:
    given = call.given
    if "load" in given and given.keys() & {"engine", "save"}:
        raise UsageProblem("replay: --load shows a file; --engine and --save are about an engine")
    if "force" in given and "save" not in given:
        raise UsageProblem("replay: --force writes over the file of --save")
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
    """The recorder's steps, also those that are too many for a page, as far as a file takes them."""
    from yaie_widgets.figures import count, counted
    from yaie_widgets.live.recording import MAX_STEPS
    from yaie_widgets.live.recording_file import MAX_BYTES, save_recording
    from yaie_widgets.live.source import whole_run

    path = call.given["save"]
    recording, known = whole_run(call.engine.llm)
    steps = len(save_recording(recording, path, force="force" in call.given)["steps"])
    saved = counted(steps, "step") if steps == known else f"the newest {count(steps)} of {counted(known, 'step')}"
    print(f"Saved {saved} to {path}; %yaie replay --load {path} shows them.")
    if steps < known:
        print(f"A file holds at most {count(MAX_STEPS)} steps, and {MAX_BYTES // 2**20} MiB before it is packed.")


def _source(call: Call) -> Source:
    """The engine's recording, or that of a file, which is checked before it is used."""
    from yaie_widgets.live.source import FileSource

    if "load" in call.given:
        from yaie_widgets.live.recording_file import load_recording

        source = FileSource(load_recording(call.given["load"]))
        if source.left_out:
            shown = len(source.recording()["steps"])
            print(f"The newest {shown:,} of {shown + source.left_out:,} steps: the others are too many for a page.")
        return source
    return followed(call)


def _options() -> tuple[Option, ...]:
    return (SAVE, FORCE, LOAD, FORMAT, ENGINE)


SUBCOMMANDS = (
    Subcommand("replay", "the recorded steps with one slider: timeline, blocks and tree", _replay, _options),
)
