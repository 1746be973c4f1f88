"""`yaie chat`: a conversation in the terminal. It keeps token ids, so each turn costs only its new tokens."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from yaie_magic.chat import Chat
from yaie_magic.cli import DONE, FAILED, complain, set_up_logging
from yaie_magic.commands.generate import chosen
from yaie_magic.options import Option, engine_options, option, sampling_options
from yaie_magic.parser import OptionParser
from yaie_magic.run import Run
from yaie_magic.terminal import printable

if TYPE_CHECKING:
    from yaie_engine import LLM, SamplingParams

PLACES = (("model", "?", "bundled model, local folder, Hub id or .gguf file [default: tiny]"),)
OWN = (
    option("verbose", "say on standard error with which settings the engine starts", "-v", kind="flag"),
    option(
        "config", "YAML file with settings and sampling parameters, below the environment and options", metavar="FILE"
    ),
    option("system", "what the model is told first", "-s", metavar="TEXT"),
)
HELP = "/reset forgets the conversation, /help shows this line, /quit or Ctrl-D ends; Ctrl-C stops an answer"


def parser() -> OptionParser:
    """Our options, those of a request but for several choices, those of the engine."""
    sampling = tuple(entry for entry in sampling_options() if entry.name != "n")
    taken = {entry.name for entry in (*OWN, *sampling)}
    engine: tuple[Option, ...] = tuple(entry for entry in engine_options() if entry.name not in taken)
    return OptionParser("yaie chat", (*OWN, *sampling, *engine), "Talk to a chat model.", PLACES)


def run(arguments: Sequence[str]) -> int:
    """Parse, load, talk until the input ends."""
    given = parser().parse(arguments)
    set_up_logging(given.get("verbose", False))

    from yaie_engine import SamplingParams
    from yaie_magic import loading, settings

    config = settings.engine_settings(
        given.get("config"), chosen(given, engine_options(), without=("seed",), also=("model",))
    )
    params = SamplingParams(**{**config.sampling_defaults, **chosen(given, sampling_options())})
    with loading.load(config) as llm:
        if sys.stdin.isatty():
            print(f"{printable(config.model)} is listening. {HELP}.")
        return converse(llm, Chat("terminal", given.get("system")), params, read_turn)


def read_turn() -> str | None:
    """What the person says next; None at the end of the input. Editing keys work where readline is there."""
    if not sys.stdin.isatty():
        line = sys.stdin.readline()
        return line.removesuffix("\n") if line else None
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401
    try:
        return input("\nyou> ")
    except EOFError:
        print()
        return None


def converse(llm: LLM, conversation: Chat, params: SamplingParams, read: Callable[[], str | None]) -> int:
    """Turn after turn; a failed answer is said and left out of the conversation."""
    code = DONE
    while (text := read()) is not None and text.strip() != "/quit":
        word = text.strip()
        if word == "/reset":
            turns = conversation.forget()
            print(f"{turns} turn{'s' if turns != 1 else ''} forgotten")
        elif word == "/help":
            print(HELP)
        elif word.startswith("/") and " " not in word:
            complain(f"unknown command {word}; {HELP}", code)
        elif word:
            code = answer(llm, conversation, params, text)
    return code


def answer(llm: LLM, conversation: Chat, params: SamplingParams, text: str) -> int:
    """Stream one answer. An interrupt stops it and keeps what was said."""
    ids = conversation.prompt(llm, text)
    turn = Run(llm.submit(ids, params), llm, ids, params)
    conversation.begin(text, turn)
    try:
        for _, delta in turn.deltas():
            sys.stdout.write(printable(delta))
            sys.stdout.flush()
    except KeyboardInterrupt:
        turn.cancel()
        turn.settle()
    print(flush=True)
    if turn.output is not None and turn.output.error is not None:
        return complain(str(turn.output.error), FAILED)
    return DONE
