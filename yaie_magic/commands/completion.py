"""`yaie completion`: a script that completes commands, options, choices, model names and files in a shell."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from yaie_magic.cli import DONE
from yaie_magic.commands import form
from yaie_magic.options import UsageProblem
from yaie_magic.parser import OptionParser
from yaie_magic.shells.words import SHELLS, all_commands

ABOUT = (
    "Print the completion script of a shell. It is made from the same tables as the options, and lists the models of "
    "the Hugging Face cache as they are when Tab is pressed."
)
PLACES = (("shell", "", f"one of {', '.join(SHELLS)}"),)
EXAMPLES = (
    ("bash: for this session, or in ~/.bashrc", 'eval "$(yaie completion bash)"'),
    ("zsh: after compinit, in ~/.zshrc", 'eval "$(yaie completion zsh)"'),
    ("fish: kept for good", "yaie completion fish > ~/.config/fish/completions/yaie.fish"),
)


def parser() -> OptionParser:
    """Its one word."""
    return form.form("completion", ABOUT, (), PLACES, examples=EXAMPLES)


def run(arguments: Sequence[str]) -> int:
    """Print the script."""
    shell = parser().parse(arguments)["shell"]
    if shell not in SHELLS:
        from yaie_engine.validation import did_you_mean

        raise UsageProblem(f"{shell!r} is none of {', '.join(SHELLS)}{did_you_mean(shell, SHELLS)}")
    print(importlib.import_module(f"yaie_magic.shells.{shell}").script(all_commands()))
    return DONE
