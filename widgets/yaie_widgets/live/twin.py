"""The static twin of a view: the drawing that a saved notebook keeps, drawn again when the engine has come to rest."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping

from yaie_widgets.safe_text import escape_text

logger = logging.getLogger("yaie")
Bundle = Mapping[str, str]
REST_S = 1.5
"""How long nothing must have happened before a twin is drawn again."""


def twin_bundle(key: str, twin: Bundle) -> dict[str, str]:
    """The twin as an output of its own, right after that of the widget with this key.

    The page of the widget hides it. Where a notebook is shown without its kernel, the twin hides what stands in the
    widget's place, which is a message that there is no such widget.
    """
    html = twin.get("text/html") or f"<pre>{escape_text(twin['text/plain'])}</pre>"
    mark = f'[data-yaie-twin="{key}"]'
    area = ".jp-OutputArea-child"
    style = f"<style>{area}:not(:has(.y-view)):has(+{area} {mark}){{display:none}}</style>"
    return {"text/plain": twin["text/plain"], "text/html": f'<div data-yaie-twin="{key}">{style}{html}</div>'}


class TwinKeeper:
    """Draws a twin again, on a thread of its own, once steps that it lacks, or the end of the engine, lie back."""

    def __init__(
        self, step: int, draw: Callable[[], Bundle], show: Callable[[Bundle], None], alive: bool = True
    ) -> None:
        self._draw, self._show = draw, show
        self._drawn = self._newest = (step, alive)
        self._since = time.monotonic()
        self._drawing = False

    def look(self, step: int, idle: bool, alive: bool = True) -> None:
        """Called often; mostly does nothing. An engine that is not alive any more rests."""
        now, seen = time.monotonic(), (step, alive)
        if seen != self._newest:
            self._newest, self._since = seen, now
        rests = (idle or not alive) and now - self._since >= REST_S
        if rests and not self._drawing and self._drawn != seen:
            self._drawing = True
            threading.Thread(target=self._renew, args=(seen,), name="yaie-twin", daemon=True).start()

    def _renew(self, seen: tuple[int, bool]) -> None:
        try:
            self._show(self._draw())
        except Exception:
            logger.exception("a static drawing could not be renewed")
        finally:
            self._drawn, self._drawing = seen, False
