"""The flight recorder at its newest step, drawn: what stands in for the live view where no kernel is."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from yaie_widgets.block_table import draw_block_table
from yaie_widgets.drawing import Drawing
from yaie_widgets.figures import count, counted
from yaie_widgets.palette import notebook_style
from yaie_widgets.radix_tree import draw_radix_tree
from yaie_widgets.safe_text import escape_text
from yaie_widgets.timeline import Timeline, draw_timeline

from .recorded import history_of, snapshot_of, tape_of
from .recording import Json


@dataclass(frozen=True, eq=False)
class ReplayDrawing:
    """Timeline, block table and radix tree of a recording, all after its newest step."""

    title: str
    timeline: Timeline
    blocks: Drawing
    tree: Drawing

    @property
    def parts(self) -> tuple[Timeline | Drawing, ...]:
        """The drawings in order."""
        return (self.timeline, self.blocks, self.tree)

    @cached_property
    def text(self) -> str:
        """For a terminal."""
        return "\n\n".join([self.title, *(part.text for part in self.parts)])

    @cached_property
    def html(self) -> str:
        """For a notebook."""
        # The frames are as wide as the widest of them.
        head = (
            f'<div class="yaie-drawing" style="width:auto;border:0"><style>{notebook_style()}'
            ".yaie-frames .yaie-drawing{width:auto}</style>"
            f'<p style="margin:0 0 8px;font-size:13px">{escape_text(self.title)}</p></div>'
        )
        drawings = (str(part._repr_mimebundle_().get("text/html", "")) for part in self.parts)
        body = "".join(f'<div style="margin-bottom:12px">{drawing}</div>' for drawing in drawings)
        return f'<div class="yaie-frames" style="width:fit-content;max-width:100%">{head}{body}</div>'

    def __repr__(self) -> str:
        return f"<ReplayDrawing: {self.title}>"

    def __str__(self) -> str:
        return self.text

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {"text/plain": self.text, "text/html": self.html}


def draw_replay(recording: Json) -> ReplayDrawing:
    """Draw a recording at its newest step."""
    tape = tape_of(recording)
    snapshot = snapshot_of(recording, tape)
    engine = recording["engine"]
    steps = len(recording["steps"])
    title = f"Flight recorder · {engine['name']} · step {count(snapshot.step)}, the newest of {counted(steps, 'step')}"
    return ReplayDrawing(
        title=title if steps else f"Flight recorder · {engine['name']} · no step recorded yet",
        timeline=draw_timeline(snapshot, tape, history_of(recording), budget=engine["max_num_batched_tokens"]),
        blocks=draw_block_table(snapshot),
        tree=draw_radix_tree(snapshot),
    )
