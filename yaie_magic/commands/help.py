"""`yaie help`: the list of commands, or the options of one."""

from __future__ import annotations

from collections.abc import Sequence

from yaie_magic.cli import COMMANDS, DONE, command, help_text
from yaie_magic.commands import form
from yaie_magic.options import UsageProblem
from yaie_magic.parser import OptionParser

PLACES = (("command", "?", "the command to explain [default: list them all]"),)
EXAMPLES = (
    ("which commands there are", "yaie help"),
    ("every option of the server", "yaie help serve"),
    ("the same", "yaie serve --help"),
)


def parser() -> OptionParser:
    """Its one word."""
    return form.form("help", "Explain a command of yaie.", (), PLACES, examples=EXAMPLES)


def run(arguments: Sequence[str]) -> int:
    """Print the text."""
    name = parser().parse(arguments).get("command")
    if name is None:
        print(help_text())
        return DONE
    if name not in COMMANDS:
        from yaie_engine.validation import did_you_mean

        hint = did_you_mean(name, COMMANDS) or "; yaie help lists them"
        raise UsageProblem(f"unknown command {name!r}{hint}")
    print(command(name).parser().format_help(), end="")
    return DONE
