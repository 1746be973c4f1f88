"""What a load says in its cell: how far it is, and in the end what runs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from yaie_engine.errors import YaieError
from yaie_magic.display import INTERVAL, Handle, in_notebook
from yaie_magic.loading import Progress
from yaie_magic.render import static_mode
from yaie_magic.session import DEFAULT_NAME, LoadedEngine, session
from yaie_magic.terminal import printable

from .entry import Call


class Announcer:
    """Says how far a load is, in one display that ends with the result; in a terminal only the result."""

    def __init__(self, call: Call) -> None:
        self._handle = Handle(call.shell) if in_notebook(call.shell) else None
        self._start = time.monotonic()
        self._said, self._at = "", 0.0

    @property
    def progress(self) -> Progress | None:
        """To be called by the loader; None where nothing can be replaced later."""
        return self._progress if self._handle else None

    def loaded(self, engine: LoadedEngine, cancelled: int, left: str = "", what: str = "loaded") -> None:
        """One line on what runs now; `left` is what `leaving` said before."""
        snapshot = engine.llm.snapshot()
        model, blocks = snapshot.model, snapshot.blocks
        took = "" if static_mode() else f" in {time.monotonic() - self._start:.1f} s"
        name = "" if engine.name == DEFAULT_NAME else f" as {engine.name}"
        where = f", {engine.elsewhere.where}" if engine.elsewhere and not static_mode() else ""
        cached = f", {blocks.cached:,} of them cached" if blocks.cached else ""
        self.say(
            f"{model.name} {what}{name}{took}: {model.dtype} on {model.device}, {model.tier} tier, "
            f"{blocks.total:,} blocks of {blocks.block_size} tokens{cached}{where}{and_cancelled(cancelled)}{left}."
        )

    @contextmanager
    def failing(self, model: str, name: str) -> Iterator[None]:
        """Around the load: says what is there when it fails, also in place of how far it was."""
        try:
            yield
        except BaseException:
            if name in session.lost:
                self.say(f"{model} was not loaded. {session.lost[name].story}.")
            elif name in session.engines and session.engines[name].alive:
                self.say(f"{model} was not loaded; {session.engines[name].model} goes on.")
            elif self._said:
                self.say(f"{model} was not loaded.")
            raise

    def _progress(self, what: str, share: float | None) -> None:
        now = time.monotonic()
        if what != self._said or now - self._at >= INTERVAL:
            self._said, self._at = what, now
            self.say(f"loading: {what}" + ("" if share is None else f", {share:.0%}"))

    def say(self, text: str) -> None:
        """Show a line, in place of how far the load is."""
        shown = printable(text)
        if self._handle is None:
            print(shown)
        else:
            self._handle.update({"text/plain": shown})


def leaving(name: str, ends: bool = False) -> str:
    """What a load under this name leaves behind, to add to its line. `ends`: the engine there ends, too."""
    found = session.engines.get(name)
    if found is None:
        return ""
    chats, elsewhere = len(found.chats), None if ends else found.elsewhere
    try:
        if elsewhere is not None:
            elsewhere.check()
    except YaieError:
        elsewhere = None
    ended = f"; {chats} chat {'session' if chats == 1 else 'sessions'} ended" if chats else ""
    return ended + (f"; {found.model}, {elsewhere.where}, goes on" if elsewhere and not static_mode() else "")


def and_cancelled(count: int) -> str:
    """What to add to a line when requests were cancelled."""
    return f"; {count} running {'request' if count == 1 else 'requests'} cancelled" if count else ""
