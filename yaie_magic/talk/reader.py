"""What the person says next: from a terminal with line editing, or line by line from a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.history import History
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

Reader = Callable[[], "str | None"]
PROMPT = "you> "
AGAIN = "Ctrl-C once more ends; /quit and Ctrl-D, too"


def edits() -> bool:
    """Whether a person types here and sees what is drawn: on standard output or, beside a pipe, on standard error."""
    return sys.stdin.isatty() and (sys.stdout.isatty() or sys.stderr.isatty())


def read_line() -> str | None:
    """The next line of standard input; None at its end."""
    line = sys.stdin.readline()
    return line.removesuffix("\n") if line else None


class Terminal:
    """Editing, history, several lines: Enter sends, Alt-Enter or a `\\` at the end of a line begins another one."""

    def __init__(self, history: History, commands: Iterable[str]) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.completion import WordCompleter
        from prompt_toolkit.output import create_output

        self._session: PromptSession[str] = PromptSession(
            history=history,
            multiline=True,
            prompt_continuation=lambda width, line, wrapped: "." * (width - 1) + " ",
            key_bindings=_bindings(),
            completer=WordCompleter(list(commands), sentence=True),
            complete_while_typing=False,
            output=create_output(always_prefer_tty=True),  # standard error where answers go into a pipe or a file
        )

    def __call__(self) -> str | None:
        """The text; None when Ctrl-D ends the conversation.

        Raises:
            KeyboardInterrupt: Ctrl-C came twice at an empty prompt.
        """
        warned = False
        while True:
            try:
                return self._session.prompt(PROMPT)
            except EOFError:
                return None
            except KeyboardInterrupt:
                if warned:
                    raise
                print(AGAIN, file=sys.stderr)
                warned = True


def _bindings() -> KeyBindings:
    from prompt_toolkit.key_binding import KeyBindings

    keys = KeyBindings()

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.char_before_cursor == "\\":
            buffer.delete_before_cursor()
            buffer.newline(copy_margin=False)
        else:
            buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.newline(copy_margin=False)

    @keys.add("c-c")
    def _(event: KeyPressEvent) -> None:
        if event.current_buffer.text:
            event.current_buffer.reset()
        else:
            event.app.exit(exception=KeyboardInterrupt, style="class:aborting")

    return keys
