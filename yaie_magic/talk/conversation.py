"""Turn after turn: what the person types is a message, or a command that begins with a slash."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from yaie_engine.errors import CapacityError, RequestError, YaieError
from yaie_magic.chat import Chat
from yaie_magic.cli import DONE, FAILED, complain
from yaie_magic.interrupt import Shield
from yaie_magic.options import UsageProblem
from yaie_magic.terminal import printable

from .figures import Figures, figures_of, show
from .reader import Reader
from .saving import save

if TYPE_CHECKING:
    from yaie_engine import SamplingParams
    from yaie_engine.serving import Engine
    from yaie_magic.run import Run

_COMMAND = re.compile(r"/([a-z]+)(?:\s+(.*))?\Z", re.DOTALL)
FULL = "the conversation has reached the model's context; /save FILE keeps it, /reset starts anew"
WAITING = "the conversation is kept: say it again when the server answers, or /save FILE"


@dataclass
class Conversation:
    """One conversation in a terminal, with the figures of its answers."""

    llm: Engine
    params: SamplingParams
    chat: Chat
    model: str
    elsewhere: bool = False
    """Whether the engine runs behind an address: it may come back, so the conversation waits for it."""
    total: Figures = field(default_factory=Figures)
    length: int = 0
    """Tokens of prompt and answer of the newest turn."""

    def run(self, read: Reader) -> int:
        """Until the input ends or /quit comes. 1 when the last answer failed.

        Raises:
            YaieError: the engine of this process is gone.
        """
        code = DONE
        while (text := read()) is not None:
            if not text.strip():
                continue
            try:
                command = command_of(text)
                if command is None:
                    code = self.answer(text.removeprefix("/") if text.startswith("//") else text)
                elif command[0] == "quit":
                    break
                else:
                    COMMANDS[command[0]].run(self, command[1])
            except YaieError as problem:
                if not self.elsewhere and self.llm.state in ("failed", "closed"):
                    raise
                code = complain(str(problem), code, "") if isinstance(problem, UsageProblem) else self._failed(problem)
        return code

    def answer(self, text: str) -> int:
        """Stream one answer. An interrupt stops it and keeps what was said."""
        with Shield() as shield:
            run = self.chat.send(self.llm, text, self.params)
            deltas = run.deltas()
            try:
                while True:
                    with shield.waiting():
                        item = next(deltas, None)
                    if item is None:
                        break
                    sys.stdout.write(printable(item[1]))
                    sys.stdout.flush()
            except KeyboardInterrupt:
                run.cancel()
            run.settle()
        print(flush=True)
        return self._after(run)

    def _after(self, run: Run) -> int:
        output = run.output
        if output is None:
            return FAILED
        if output.error is not None:
            return self._failed(output.error)
        figures = figures_of(output)
        self.total = self.total.plus(figures)
        self.length = (figures.prompt or 0) + (figures.generated or 0)
        show(figures.line())
        if self.length >= self.llm.max_model_len > 0:
            show(FULL)
        return DONE

    def _failed(self, error: YaieError) -> int:
        code = complain(str(error), FAILED)
        if isinstance(error, CapacityError) and self.length:
            show(FULL)
        if self.elsewhere and not isinstance(error, RequestError):
            show(WAITING)
        return code

    def reset(self, word: str) -> None:
        """/reset"""
        turns = self.chat.forget()
        self.length = 0
        print(f"{turns} turn{'s' if turns != 1 else ''} forgotten")

    def system(self, text: str) -> None:
        """/system"""
        if not text:
            print(printable(self.chat.system) if self.chat.system else "no system text; /system TEXT sets one")
            return
        turns = self.chat.forget()
        self.chat.system, self.length = text, 0
        print(f"set; {turns} turn{'s' if turns != 1 else ''} forgotten" if turns else "set")

    def save(self, name: str) -> None:
        """/save"""
        if not name:
            raise UsageProblem("/save FILE: say where, for instance /save talk.md or /save talk.json")
        opening = [{"role": "system", "content": self.chat.system}] if self.chat.system else []
        try:
            path = Path(name).expanduser()
        except RuntimeError as error:  # ~NAME, and there is nobody of that name
            raise UsageProblem(f"{name}: {error}") from None
        save(path, self.model, [*opening, *self.chat.messages])
        print(f"{self.chat.num_turns} turn{'s' if self.chat.num_turns != 1 else ''} saved in {printable(str(path))}")

    def stats(self, word: str) -> None:
        """/stats"""
        rows = [("model", self.model), ("turns", str(self.chat.num_turns))]
        if self.length:
            most = f" of {self.llm.max_model_len:,}" if self.llm.max_model_len else ""
            rows.append(("context", f"{self.length:,}{most} tokens"))
        for name, value in [*rows, *self.total.rows()]:
            print(f"{name:<17}{printable(value)}")

    def help(self, word: str) -> None:
        """/help"""
        for name, command in COMMANDS.items():
            print(f"/{name + command.words:<16}{command.text}")
        print(KEYS)


@dataclass(frozen=True, slots=True)
class SlashCommand:
    """What stands behind a slash."""

    words: str
    text: str
    run: Callable[[Conversation, str], None]


KEYS = "Ctrl-C stops an answer. Alt-Enter, or \\ at the end of a line, begins another line; // sends a leading slash."


def _quit(conversation: Conversation, word: str) -> None:
    """Ends the loop before this is called; stands here for /help and completion."""


COMMANDS = {
    "reset": SlashCommand("", "forget the conversation", Conversation.reset),
    "system": SlashCommand(" [TEXT]", "show what the model is told first; set it and begin anew", Conversation.system),
    "save": SlashCommand(" FILE", "keep the conversation in a new .md or .json file", Conversation.save),
    "stats": SlashCommand("", "tokens, cache and speed so far", Conversation.stats),
    "help": SlashCommand("", "this list", Conversation.help),
    "quit": SlashCommand("", "end; so does Ctrl-D", _quit),
}


def command_of(text: str) -> tuple[str, str] | None:
    """The command in a text and the rest of it; None for a message. A path, or a word that is no command, is a message
    when more follows.

    Raises:
        UsageProblem: it looks like a command, but there is none of that name.
    """
    from yaie_engine.validation import did_you_mean

    found = _COMMAND.match(text.strip())
    if found is None:
        return None
    name, rest = found[1], (found[2] or "").strip()
    if name in COMMANDS:
        return name, rest
    hint = did_you_mean(f"/{name}", [f"/{each}" for each in COMMANDS])
    if rest and not hint:
        return None
    raise UsageProblem(f"unknown command /{name}{hint or '; /help lists them'}")
