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
from typing import Protocol, cast

DONE, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130
COMMANDS = {
    "generate": "answer prompts, streaming the text",
    "chat": "talk to a chat model in the terminal",
    "serve": "serve a model over HTTP: the OpenAI API and more",
    "models": "list the models on this machine",
    "kernels": "list the CUDA kernels and compile them ahead",
    "doctor": "report what the engine finds here, and try it",
}
GLOBAL_OPTIONS = ("--help", "--version")


class Command(Protocol):
    """A module under `yaie_magic.commands`."""

    def run(self, arguments: Sequence[str]) -> int:
        """Parse the words after the subcommand, do the work, give the exit code."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of the console script."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    set_up_logging()
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
    command = cast(Command, importlib.import_module(f"yaie_magic.commands.{words[0]}"))
    return command.run(words[1:])


def help_text() -> str:
    """What `yaie --help` shows."""
    lines = [f"  {name:<12}{text}" for name, text in COMMANDS.items()]
    return "\n".join(
        [
            "usage: yaie COMMAND [OPTIONS]",
            "",
            "A real LLM inference engine on the command line. `yaie COMMAND --help` shows the options of a command.",
            "",
            "commands:",
            *lines,
            "",
            "options:",
            "  --version   the version",
            "  --help      this text",
        ]
    )


def explain(error: Exception) -> int:
    """One line on stderr for an error, with the exit code of its kind; details at YAIE's debug log level."""
    from yaie_engine.errors import YaieError

    logging.getLogger("yaie").debug("details", exc_info=error)
    if isinstance(error, YaieError):  # those that are ValueErrors too are about what was typed
        return complain(str(error), USAGE if isinstance(error, ValueError) else FAILED)
    return complain(f"{type(error).__name__}: {error}", FAILED)


def complain(message: str, code: int) -> int:
    """Print `yaie: message` on one line of stderr; the exit code comes back."""
    from .terminal import printable

    print(f"yaie: {printable(' '.join(message.split()))}", file=sys.stderr)
    return code


def set_up_logging(verbose: bool = False) -> None:
    """Warnings of the engine as `yaie: ...` lines on stderr; verbose ones, too, when asked for."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("yaie: %(message)s"))
    logger = logging.getLogger("yaie")
    logger.handlers[:] = [handler]
    logger.setLevel(logging.INFO if verbose else logging.NOTSET)
    logger.propagate = False


if __name__ == "__main__":
    sys.exit(main())
