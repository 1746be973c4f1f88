"""`yaie chat`: a conversation in the terminal. It keeps token ids, so each turn costs only its new tokens."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from yaie_magic import logs
from yaie_magic.commands import form
from yaie_magic.commands.source import ELSEWHERE, open_engine
from yaie_magic.options import option
from yaie_magic.parser import OptionParser
from yaie_magic.terminal import printable

if TYPE_CHECKING:
    from yaie_magic.talk.reader import Reader

ABOUT = (
    "Talk to a chat model. Answers stream; a line after each says its prompt tokens, how many of them came from the "
    "cache, and its speed. /help, typed in the conversation, lists what it can do: /reset, /system, /save, /stats."
)
PLACES = (("model", "?", form.MODEL),)
OWN = (
    form.CONFIG,
    option("system", "what the model is told first", "-s", metavar="TEXT"),
    option("no_history", "keep nothing of what is typed for the arrow keys of the next conversation", kind="flag"),
)
EXAMPLES = (
    ("with the bundled model", "yaie chat"),
    ("another model, told what to be first", 'yaie chat Qwen/Qwen2.5-0.5B-Instruct --system "Answer in one sentence."'),
    ("with an engine that runs elsewhere", "yaie chat --url http://127.0.0.1:8000"),
    ("from a pipe, a line a turn", 'printf "Hello.\\nAnd now?\\n" | yaie chat --temperature 0'),
)


def parser() -> OptionParser:
    """Our options, those of a request but for several choices, those of the engine."""
    sampling = form.sampling_group(without=("n",))
    engine = form.engine_groups(without=(*OWN, *sampling.options))
    variables = (form.SETTINGS, form.KEY, form.CACHES)
    groups = form.with_logging(sampling, ELSEWHERE, *engine)
    return form.form("chat", ABOUT, OWN, PLACES, groups, EXAMPLES, variables)


def run(arguments: Sequence[str]) -> int:
    """Parse, load, talk until the input ends."""
    given = parser().parse(arguments)
    logs.set_up(given)
    with open_engine(given) as (llm, params):
        from yaie_magic.chat import Chat
        from yaie_magic.talk.conversation import KEYS, Conversation
        from yaie_magic.talk.reader import edits

        chat = Chat("terminal", given.get("system"))
        conversation = Conversation(llm, params, chat, llm.config.model, elsewhere="url" in given)
        read = reader(given)
        if edits():
            place = sys.stdout if sys.stdout.isatty() else sys.stderr
            print(f"{printable(conversation.model)} is listening. /help lists the commands. {KEYS}", file=place)
        return conversation.run(read)


def reader(given: Mapping[str, Any]) -> Reader:
    """Lines of a pipe, or a terminal with editing and history."""
    from yaie_magic.talk.reader import Terminal, edits, read_line

    if not edits():
        return read_line

    from prompt_toolkit.history import InMemoryHistory

    from yaie_magic.talk.conversation import COMMANDS
    from yaie_magic.talk.history import history_path, open_history

    history, problem = (InMemoryHistory(), None) if given.get("no_history") else open_history(history_path())
    if problem:
        logs.logger.warning("%s", problem)
    return Terminal(history, [f"/{name}" for name in COMMANDS])
