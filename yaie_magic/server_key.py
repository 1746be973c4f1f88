"""Where the key of a server comes from: a variable of the environment, or somebody who types it unseen."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from .options import UsageProblem

if TYPE_CHECKING:
    from .remote import RemoteLLM
    from .remote.key import Key

KEY_VARIABLE = "YAIE_API_KEY"


def key_of(variable: str | None) -> Key | None:
    """The key in a variable of the environment; None when only the usual one could have it, and does not.

    Raises:
        UsageProblem: the variable that was named is not set.
        ConfigError: what it holds is no key.
    """
    from .remote.key import Key

    text = os.environ.get(variable or KEY_VARIABLE)
    if not text and variable is not None:
        raise UsageProblem(f"--key-env {variable}: this variable is not set")
    return Key(text) if text else None


def typed_key(why: str) -> Key | None:
    """The key that somebody types at a prompt; `why` is what the server said. None when nothing was typed.

    It is in no history: it is the answer to a question and no input of a notebook or shell.
    """
    from getpass import getpass

    from .remote.key import Key

    text = getpass(f"{why.partition(';')[0]}. Key: ").strip()
    return Key(text) if text else None


def with_key(
    connect: Callable[[Key | None], RemoteLLM], key: Key | None, ask: Callable[[str], Key | None]
) -> RemoteLLM:
    """What `connect` gives for `key`; one that is missing or wrong is asked for, once.

    Raises:
        KeyNeeded: none or a wrong one was given, and `ask`, which is told what the server said, has none.
    """
    from .remote import KeyNeeded

    try:
        return connect(key)
    except KeyNeeded as problem:
        typed = ask(str(problem))
        if typed is None:
            raise
    return connect(typed)
