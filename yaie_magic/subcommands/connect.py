"""`%yaie connect`: an engine that runs elsewhere, under a name of this session."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from yaie_magic.aside import aside
from yaie_magic.options import Option, option
from yaie_magic.server_key import KEY_VARIABLE, key_of, typed_key, with_key
from yaie_magic.session import DEFAULT_NAME, Elsewhere, Opened, session
from yaie_magic.terminal import printable

from .engines import AS, engine_name
from .entry import FORCE, Call, Subcommand

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from yaie_magic.remote import RemoteLLM
    from yaie_magic.remote.key import Key

MODEL = option("model", "which of the server's models [default: its only one]", metavar="NAME")
KEY_ENV = option(
    "key_env", f"the environment variable that holds the server's key [default: {KEY_VARIABLE}]", metavar="VARIABLE"
)


def _options() -> tuple[Option, ...]:
    return (AS, MODEL, KEY_ENV, FORCE)


def _connect(call: Call) -> None:
    given = call.given
    name, url, model = engine_name(given), given["url"], given.get("model")
    key = key_of(given.get("key_env"))
    llm = _open(call.shell, url, key, model)
    try:
        chats = len(session.engines[name].chats) if name in session.engines else 0
        _, elsewhere = opened(llm)
        cancelled = session.adopt(name, llm.config, llm, llm.model, given.get("force", False), elsewhere)
    except BaseException:
        llm.close()
        raise
    ended = f"; {chats} chat {'session' if chats == 1 else 'sessions'} ended" if chats else ""
    gone = f"; {cancelled} running {'request' if cancelled == 1 else 'requests'} cancelled" if cancelled else ""
    print(f"{describe(llm, name)}{gone}{ended}.")


def opened(llm: RemoteLLM) -> Opened:
    """The engine with what a session needs to know of it."""
    parting = "disconnected; its server goes on"
    return llm, Elsewhere(llm.model, llm.url, parting, lambda _: opened(llm.reconnect()), lambda: None)


def _open(shell: InteractiveShell, url: str, key: Key | None, model: str | None) -> RemoteLLM:
    """Connect; a key that is missing or wrong is asked for where somebody can type one."""
    from yaie_magic.remote import connect

    def try_it(key: Key | None) -> RemoteLLM:
        return _aside(partial(connect, url, key, model=model))

    return with_key(try_it, key, partial(ask_key, shell))


def _aside(connect: Callable[[], RemoteLLM]) -> RemoteLLM:
    """The connection; one that comes after an interrupt is closed again."""
    made: list[RemoteLLM] = []
    given_up = threading.Event()

    def work() -> RemoteLLM:
        made.append(llm := connect())
        if given_up.is_set():
            llm.close()
        return llm

    try:
        return aside("connect", work)
    except BaseException:
        given_up.set()
        for llm in made:
            llm.close()
        raise


def ask_key(shell: InteractiveShell, why: str) -> Key | None:
    """The key that is missing, typed unseen; None where nobody can, or nothing was typed."""
    import sys

    from IPython.core.error import StdinNotImplementedError

    if getattr(shell, "kernel", None) is None and not sys.stdin.isatty():
        return None
    try:
        return typed_key(why)
    except (StdinNotImplementedError, EOFError):
        return None


def describe(llm: RemoteLLM, name: str) -> str:
    """The model, where it is and what works there, in one line without its end."""
    known = "" if name == DEFAULT_NAME else f" as {name}"
    works = "all cells and views"
    if llm.kind != "yaie":
        works = "%%generate, %%chat and %%batch; it is not a YAIE server and shows no views"
        if not llm.continues_text:
            works += ", and takes a prompt as a chat message"
    open_wire = "; the connection is not encrypted" if llm.client.address.exposed else ""
    return printable(f"{llm.model} on {llm.url} connected{known}: {works}{open_wire}")


SUBCOMMANDS = (
    Subcommand(
        "connect",
        "use an engine that runs elsewhere: a YAIE server, or any with the OpenAI API",
        _connect,
        _options,
        (("url", "", "its address, like http://127.0.0.1:8000"),),
    ),
)
