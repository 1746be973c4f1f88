"""The options of the cell magics: their own, and one for every sampling parameter."""

from __future__ import annotations

import functools
from typing import Literal

from .options import Option, UsageProblem, option, sampling_options
from .parser import OptionParser

Cell = Literal["generate", "chat", "batch"]
FORMATS = ("text", "markdown", "json")
SHARED = (
    option("output", "bind the result to this name", "-o", metavar="NAME"),
    option("background", "return at once; the text appears in this cell while others run", "-b", kind="flag"),
    option("interpolate", "replace {name} in the body by the value of that name", "-i", kind="flag"),
    option("quiet", "show nothing; the result is in Out, _yaie and the -o name", "-q", kind="flag"),
    option("format", "how the result is shown [default: text]", kind="choice", choices=FORMATS),
    option("engine", "the loaded engine to use [default: the current one]", metavar="NAME"),
)
OWN: dict[Cell, tuple[Option, ...]] = {
    "generate": (),
    "chat": (
        option("session", "the conversation to go on with [default: default]", metavar="NAME"),
        option("system", "what the model is told first; starts a conversation", "-s", metavar="TEXT"),
        option("new", "forget this conversation first", kind="flag"),
    ),
    "batch": (
        option("sep", "the line between two prompts [default: ---]", metavar="TEXT"),
        option("jsonl", 'one JSON value a line: a string, or {"prompt": ..., sampling parameters}', kind="flag"),
        option("from", "take the prompts from the list of this name", metavar="NAME"),
    ),
}
ABOUT: dict[Cell, str] = {
    "generate": "Stream text from the loaded model. The cell body is the prompt, byte for byte.",
    "chat": "Say the cell body to the loaded chat model, in a conversation that goes on from cell to cell.",
    "batch": "Answer many prompts together: the parts of the cell body between lines of ---.",
}


@functools.cache
def cell_parser(cell: Cell) -> OptionParser:
    """The parser of `%%generate`, `%%chat` or `%%batch`."""
    return OptionParser(f"%%{cell}", (*OWN[cell], *SHARED, *sampling_options()), ABOUT[cell])


def check_name(name: str | None) -> str | None:
    """The name after `-o`.

    Raises:
        UsageProblem: it is not a Python name.
    """
    import keyword

    if name is not None and (not name.isidentifier() or keyword.iskeyword(name)):
        raise UsageProblem(f"-o {name!r} is not a Python name")
    return name
