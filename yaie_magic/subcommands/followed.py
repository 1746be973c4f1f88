"""What a view of the engine follows, with a word on it when nothing new comes from there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from yaie_magic.terminal import printable

from .entry import Call

if TYPE_CHECKING:
    from yaie_widgets.live.source import Source


def followed(call: Call) -> Source:
    """The source of the engine that is meant, up to date; of a server that does not answer, what it told before.

    Raises:
        YaieError: the engine runs elsewhere, and nothing is known of it.
    """
    from yaie_widgets.live.source import source_of

    source = source_of(call.engine.llm)
    if source.trouble is not None:
        print(printable(f"{source.trouble}. This is what was told before that, up to step {source.step:,}."))
    return source
