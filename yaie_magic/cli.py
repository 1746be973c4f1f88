"""The command `yaie`: finds the subcommand, runs it, turns every failure into one line and an exit code.

Exit codes: 0 done, 1 failed, 2 usage or a bad value, 130 interrupted.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import logging
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, cast

from . import logs

if TYPE_CHECKING:
    from .parser import OptionParser

DONE, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130
COMMANDS = {
    "generate": "answer prompts, streaming the text",
    "chat": "talk to a chat model in the terminal",
    "serve": "serve a model over HTTP: the OpenAI API and more",
    "bench": "measure this engine, or put load on a server",
    "stop": "end engines that notebooks left running, or list them",
    "models": "list the models on this machine",
    "kernels": "list the CUDA kernels and compile them ahead",
    "doctor": "report what the engine finds here, and try it",
    "completion": "print the completion script of a shell",
    "help": "explain a command",
}
GLOBAL_OPTIONS = ("--help", "--version")
EXAMPLES = (
    ('yaie generate "Once upon a time" -m 40', "text from the bundled model"),
    ("yaie chat", "a conversation with it"),
    ("yaie serve --port 8000", "the OpenAI API on this machine"),
    ("yaie chat --url http://127.0.0.1:8000", "a conversation with that server"),
    ("yaie doctor", "whether all that an engine needs is here"),
)


class Command(Protocol):
    """A module under `yaie_magic.commands`."""

    def parser(self) -> OptionParser:
        """The parser of its words, from whose tables help and completion are made."""

    def run(self, arguments: Sequence[str]) -> int:
        """Parse the words after the subcommand, do the work, give the exit code."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of the console script."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    logs.set_up({})
    atexit.register(gc.freeze)  # or the interpreter, at its end, searches all of torch's objects for cycles: a second
    try:
        return dispatch(words)
    except KeyboardInterrupt:
        return complain("interrupted", INTERRUPTED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except Exception as error:
        return explain(error)


def dispatch(words: list[str]) -> int:
    """Run the subcommand named first, or answer --help and --version."""
    if not words or words[0] in ("-h", "--help"):
        print(help_text())
        return DONE if words else USAGE
    if words[0] == "--version":
        from yaie_magic import __version__

        print(f"yaie {__version__}")
        return DONE
    if words[0] not in COMMANDS:
        import difflib

        kind = "option" if words[0].startswith("-") else "command"
        near = difflib.get_close_matches(words[0], [*COMMANDS, *GLOBAL_OPTIONS], n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join([*COMMANDS, *GLOBAL_OPTIONS])}"
        return complain(f"unknown {kind} {words[0]!r}; {hint}", USAGE)
    return command(words[0]).run(words[1:])


def command(name: str) -> Command:
    """The module of a command that is in the table."""
    return cast(Command, importlib.import_module(f"yaie_magic.commands.{name}"))


def help_text() -> str:
    """What `yaie --help` shows."""
    lines = [f"  {name:<12}{text}" for name, text in COMMANDS.items()]
    return "\n".join(
        [
            "usage: yaie COMMAND [options]",
            "",
            "A real LLM inference engine on the command line. `yaie help COMMAND`, or `yaie COMMAND --help`, shows the",
            "options of a command with examples.",
            "",
            "commands:",
            *lines,
            "",
            "options:",
            "  --version   the version",
            "  -h, --help  this text",
            "",
            "examples:",
            *(f"  {line:<48}# {text}" for line, text in EXAMPLES),
            "",
            "exit codes: 0 done; 1 failed; 2 usage or a bad value; 130 interrupted by Ctrl-C",
        ]
    )


def explain(error: Exception) -> int:
    """One line on stderr for an error, with the exit code of its kind; details at YAIE's debug log level."""
    from yaie_engine.errors import YaieError

    logging.getLogger("yaie").debug("details", exc_info=error)
    if isinstance(error, YaieError):  # those that are ValueErrors too are about what was typed
        return complain(str(error), USAGE if isinstance(error, ValueError) else FAILED)
    return complain(f"{type(error).__name__}: {error}", FAILED, type(error).__name__)


def complain(message: str, code: int, logged: str | None = None) -> int:
    """Print `yaie: message` on one line of stderr; the exit code comes back. Where a file is the log, it gets the line,
    too, or `logged` instead: a message that may repeat what was typed is not for a log."""
    from .terminal import printable

    line = printable(" ".join(message.split()))
    print(f"yaie: {line}", file=sys.stderr)
    logs.to_file(line if logged is None else logged)
    return code


if __name__ == "__main__":
    sys.exit(main())
