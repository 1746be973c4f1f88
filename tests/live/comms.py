"""A comm that remembers what was sent, and a page that takes it in as the script does."""

from __future__ import annotations

import base64
import gzip
import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from yaie_widgets.live.view import LiveView


class FakeComm:
    """The kernel's end of a connection."""

    def __init__(self, **opened: Any) -> None:
        self.comm_id = opened.get("comm_id") or uuid.uuid4().hex  # ipywidgets opens one for the layout, too
        self.opened = opened["data"]["state"]
        self.sent: list[tuple[float, dict[str, Any]]] = []
        self.handler: Any = None
        self.closed = False
        self.page: Page | None = None

    def send(self, data: dict[str, Any], buffers: Any = None) -> None:
        self.sent.append((time.monotonic(), data))
        if self.page is not None:
            self.page.take(data)

    def on_msg(self, handler: Any) -> None:
        self.handler = handler

    def close(self, *_: Any, **__: Any) -> None:
        self.closed = True

    def say(self, **content: Any) -> None:
        """A page speaks."""
        self.handler({"content": {"data": {"method": "custom", "content": content}}, "buffers": []})

    def messages(self) -> list[dict[str, Any]]:
        """The custom messages so far, in order."""
        return [data["content"] for _, data in list(self.sent) if data["method"] == "custom"]

    def times(self, method: str = "custom") -> list[float]:
        return [at for at, data in list(self.sent) if data["method"] == method]

    def kinds(self) -> list[str]:
        """The kinds of all messages, of several in one each."""
        return [each["kind"] for each in self.each()]

    def each(self) -> list[dict[str, Any]]:
        """All messages, unpacked, of several in one each."""
        plain = [unpacked(message) for message in self.messages()]
        return [each for message in plain for each in message.get("messages", [message])]


def unpacked(message: dict[str, Any]) -> dict[str, Any]:
    """A message as the page reads it."""
    if "packed" not in message:
        return message
    return json.loads(gzip.decompress(base64.b64decode(message["packed"])))  # type: ignore[no-any-return]


class Page:
    """Takes messages in order, notices gaps and asks, as the script of a page does; `loses` says which get lost."""

    def __init__(self, comm: FakeComm, loses: Any = lambda seq: False) -> None:
        snapshot = comm.opened["snapshot"]
        self.comm, self.loses = comm, loses
        self.seq, self.words = snapshot["seq"], list(snapshot["words"])
        self.asked = 0
        comm.page = self

    def take(self, data: dict[str, Any]) -> None:
        if data["method"] != "custom":
            return
        message = {**unpacked(data["content"]), "seq": data["content"]["seq"]}
        if self.loses(message["seq"]):
            return
        if message["kind"] != "whole" and message["seq"] != self.seq + 1:
            if message["seq"] > self.seq:
                self.asked += 1
                seq = self.seq  # answered on another thread, as in a kernel
                threading.Thread(target=lambda: self.comm.say(kind="ready", seq=seq, page="p")).start()
            return
        self.seq = message["seq"]
        for each in message.get("messages", [message]):
            self.words = list(each["words"]) if each["kind"] == "whole" else [*self.words, each["word"]]


def opened_views(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[LiveView], FakeComm]]:
    """Views get fake comms; they are closed when the test ends. The fixture `opened` of several files."""
    views: list[LiveView] = []

    def make(view: LiveView) -> FakeComm:
        views.append(view)
        return view.comm  # type: ignore[no-any-return]

    monkeypatch.setattr("comm.create_comm", FakeComm)
    yield make
    for view in views:
        view.close()
