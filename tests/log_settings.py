"""What `yaie_magic.logs` sets for the process of a command ends with the test that ran the command.

Left behind it would be heard by others: pytest listens to a logger that does not propagate by a handler of its own, so
that a later test that turns propagation on again hears each line twice.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

from yaie_magic.logs import LogFile, Stderr


def ours() -> list[logging.Logger]:
    """Every logger of the product."""
    names = [name for name in logging.Logger.manager.loggerDict if name.split(".")[0] == "yaie"]
    return [logging.getLogger(name) for name in names]


@contextlib.contextmanager
def kept_log_settings() -> Iterator[None]:
    """Handlers, level and propagation of our loggers are afterwards as before; the root loses handlers of ours."""
    before = {each: (list(each.handlers), each.level, each.propagate) for each in ours()}
    try:
        yield
    finally:
        root = logging.getLogger()
        for each in [root, *ours()]:
            for handler in [old for old in each.handlers if isinstance(old, Stderr | LogFile)]:
                each.removeHandler(handler)
                handler.close()
        for each in ours():
            handlers, level, each.propagate = before.get(each, ([], logging.NOTSET, True))
            each.handlers[:] = handlers
            each.setLevel(level)
