"""The base of all live views: one numbered stream of messages, and a whole state for whoever missed some of it."""

from __future__ import annotations

import logging
import math
import threading
import time
import uuid
from collections.abc import Sequence
from typing import Any, ClassVar

import anywidget
import traitlets

from .bundle import css, esm
from .packing import DELTA_BYTES, PLAIN_BYTES, measured, packed
from .publisher import publisher

logger = logging.getLogger("yaie")
Message = dict[str, Any]
PER_SECOND = 30
"""Messages that a view sends in a second, at most."""
BYTES_PER_S = 500_000
"""What all views of the process send together, about: notebook servers drop what exceeds a million bytes a second."""
_TRAIT_S = 1.0
LINGER_S = 5.0
"""How long a view that every page has left is still served: a page that is loaded again is back by then."""


class LiveView(anywidget.AnyWidget):
    """A widget whose state reaches the page as `whole()` once and as messages from then on.

    Every message carries `seq`. Messages posted between two turns of the publisher travel as one. A page that missed
    some says `ready` and gets the whole. Change what `whole()` tells and `post` about it under one hold of `lock`, so
    that nothing is told twice.

    Some kernels hear nothing from a page while a cell runs. Until the first word from a page, the whole state
    also travels in the trait `snapshot`, once a second at most.
    """

    NAME: ClassVar[str] = ""
    INTERVAL: ClassVar[float] = 1 / PER_SECOND

    key = traitlets.Unicode().tag(sync=True)
    snapshot = traitlets.Dict().tag(sync=True)

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._seq = 0
        self._posted: list[Message] = []
        self._whole_due = self._heard = self._dirty = False
        self._sent_at = self._trait_at = -math.inf
        self._rest = 0.0  # seconds that the last message asks for
        self._pages: dict[str, bool] = {}
        self._came = 0
        self._left_at = math.inf
        self._esm, self._css = esm(self.NAME), css(self.NAME)
        key = uuid.uuid4().hex
        super().__init__(model_id=key, key=key)
        if hasattr(self.comm, "_reply_subshell_for"):
            # Some kernels answer on the shell that runs the cell, so that a page would be heard only after it.
            self.comm._reply_subshell_for = lambda data, default: default
        self.on_msg(self._on_page)
        publisher.add(self)

    # ---- for subclasses

    def whole(self) -> Message:
        """The whole state as one message, with its `kind`."""
        raise NotImplementedError

    def on_message(self, kind: str, content: Message) -> None:
        """A page said something of the view's own. Called on whichever thread the kernel chooses: only set flags."""

    def coalesce(self, messages: Sequence[Message]) -> Sequence[Message]:
        """The messages of one turn, before they are sent as one."""
        return messages

    def post(self, kind: str, **content: Any) -> None:
        """Send a message at the next turn. Any thread; costs the caller nothing but a list entry."""
        with self.lock:
            self._posted.append({"kind": kind, **content})
            self._dirty = True
        publisher.wake()

    def close(self) -> None:
        """End the view: it disappears from its pages.

        A finaliser calls it once more, on any thread and under any lock: a view that is closed waits for none.
        """
        if self.comm is not None:
            publisher.remove(self)
        super().close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    # ---- publisher thread

    @property
    def visible(self) -> bool:
        """Whether some page shows the view, or nobody has said yet."""
        return not self._came or any(self._pages.values())

    def over(self) -> float:
        """When the view need not be served any more: some time after the last of its pages has left it."""
        return self._left_at + LINGER_S

    def pending(self) -> bool:
        """Whether there is something to send."""
        return bool(self._posted) or self._whole_due

    def due(self) -> float:
        """When to publish next."""
        turn = self.next_turn()
        if not self.visible:
            return math.inf
        if self.pending():
            return turn
        return max(turn, self._trait_at + _TRAIT_S) if self._dirty and not self._heard else math.inf

    def next_turn(self) -> float:
        """When something may be sent again: the larger the last message and the more views, the later."""
        return self._sent_at + max(self.INTERVAL, self._rest)

    def publish(self) -> None:
        """Send what there is, as one message."""
        with self.lock:
            self._sent_at = time.monotonic()
            if self._whole_due:
                self._whole_due = False
                self._posted.clear()
                self._transmit(self.whole(), PLAIN_BYTES)
            elif self._posted:
                messages = self.coalesce(self._posted)
                self._posted = []
                one = messages[0] if len(messages) == 1 else {"kind": "several", "messages": list(messages)}
                self._transmit(one, DELTA_BYTES)
            if self._dirty and not self._heard and self._sent_at >= self._trait_at + _TRAIT_S:
                self._trait_at, self._dirty = self._sent_at, False
                self.send_state("snapshot")

    def _transmit(self, message: Message, most: int) -> None:
        message, size = measured(message, most)
        self._rest = size * publisher.crowd / BYTES_PER_S
        self._seq += 1
        self._dirty = True
        if self.comm is not None:
            self.send({**message, "seq": self._seq})

    def stopped(self) -> None:
        """Nothing is sent any more, and the pages are told so."""
        if self.comm is not None:
            self.send({"kind": "stopped"})

    # ---- kernel's threads

    def get_state(self, key: Any = None, drop_defaults: bool = False) -> Any:
        """The state for a page that asks; `snapshot` is made then, never kept."""
        state = super().get_state(key, drop_defaults)
        if "snapshot" in state:
            with self.lock:
                state["snapshot"] = {"seq": self._seq, **packed(self.whole())}
                # What waits to be sent is in there already: replace it by the whole for all pages.
                self._whole_due = self._whole_due or bool(self._posted)
        return state

    def _on_page(self, _: Any, content: Any, __: Any) -> None:
        if not isinstance(content, dict) or not isinstance(content.get("kind"), str):
            return
        page = str(content.get("page", ""))[:40]
        with self.lock:
            self._heard = True
            if content["kind"] == "ready":
                self._see(page, self._pages.get(page, True))
                self._whole_due = self._whole_due or content.get("seq") != self._seq
            elif content["kind"] == "visible":
                self._see(page, content.get("visible") is True)
            elif content["kind"] == "gone":
                self._see(page, False)
                self._pages.pop(page, None)
                if not self._pages:
                    self._left_at = time.monotonic()
        if content["kind"] == "gone":
            publisher.wake()
        elif content["kind"] in ("ready", "visible"):
            publisher.add(self)
        else:
            try:
                self.on_message(content["kind"], content)
            except Exception:  # a page may say anything
                logger.exception("a message of a page was not understood")

    def _see(self, page: str, visible: bool) -> None:
        before = self.visible
        self._came += page not in self._pages
        self._pages[page] = visible
        self._left_at = math.inf
        if self.visible and not before:
            self.catch_up()
        elif before and not self.visible:
            self._posted.clear()

    def catch_up(self) -> None:
        """The view is seen again: what was not sent meanwhile is in the whole."""
        self._whole_due = True
