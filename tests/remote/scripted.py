"""A server that answers as a test says, byte for byte, and remembers what it was asked."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

MODELS = {"object": "list", "data": [{"id": "m", "object": "model", "owned_by": "somebody"}]}


@dataclass(frozen=True)
class Asked:
    """One request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any


class Reply:
    """What a script writes on: raw bytes, or whole answers."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection

    def raw(self, data: bytes) -> None:
        """Send these bytes."""
        self.connection.sendall(data)

    def json(self, value: Any, status: int = 200, **headers: str) -> None:
        """Send a whole answer."""
        self.whole(json.dumps(value).encode(), status, **headers)

    def whole(self, body: bytes, status: int = 200, **headers: str) -> None:
        """Send a whole answer of any kind."""
        lines = [f"HTTP/1.1 {status} X", f"content-length: {len(body)}", "connection: close"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.raw("\r\n".join([*lines, "", ""]).encode() + body)

    def stream(self, *events: Any, **headers: str) -> None:
        """Begin a stream, with these events; it ends when the script does."""
        lines = ["HTTP/1.1 200 OK", "content-type: text/event-stream", "connection: close"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.raw("\r\n".join([*lines, "", ""]).encode())
        for event in events:
            self.event(event)

    def event(self, event: Any) -> None:
        """Send one event: an object, or text as it stands."""
        self.raw(f"data: {event if isinstance(event, str) else json.dumps(event)}\n\n".encode())

    def gone(self, seconds: float = 30.0) -> bool:
        """Whether the client closes the connection within this time."""
        self.connection.settimeout(seconds)
        try:
            return self.connection.recv(1) == b""
        except ConnectionError:
            return True
        except TimeoutError:
            return False


Script = Callable[[Asked, Reply], None]


class ScriptedServer:
    """Each connection is one request, answered by the script of its path. /v1/models is answered unless it has one."""

    def __init__(self, **scripts: Script) -> None:
        self.scripts: dict[str, Script] = {"/v1/models": lambda _, reply: reply.json(MODELS)}
        self.asked: list[Asked] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def on(self, path: str, script: Script) -> None:
        """Answer this path so."""
        self.scripts[path] = script

    def requests(self, path: str) -> list[Asked]:
        """What was asked of a path, but for empty bodies, with which a client looks whether there is a route."""
        return [each for each in self.asked if each.path == path and each.body != {}]

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                asked = _read(connection)
                self.asked.append(asked)
                script = self.scripts.get(asked.path) or self.scripts.get(asked.path.partition("?")[0])
                if script is None or (asked.body == {} and asked.path.startswith("/v1/")):
                    Reply(connection).json({"error": {"message": "no"}}, 404 if script is None else 400)
                else:
                    script(asked, Reply(connection))
            except OSError:  # the client has left
                return

    def close(self) -> None:
        """Stop listening."""
        with contextlib.suppress(OSError):  # it is closed already
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(10)


def _read(connection: socket.socket) -> Asked:
    data = b""
    while b"\r\n\r\n" not in data:
        if not (piece := connection.recv(65536)):
            raise OSError("no request came")
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    while len(body) < int(headers.get("content-length", "0")):
        body += connection.recv(65536)
    method, path, _ = first.split(" ")
    return Asked(method, path, headers, json.loads(body) if body else None)


def chunk(text: str = "", reason: str | None = None, **more: Any) -> dict[str, Any]:
    """A chunk of a text completion."""
    return {"id": "cmpl-1", "choices": [{"index": 0, "text": text, "finish_reason": reason}], **more}


def chat_chunk(text: str = "", reason: str | None = None) -> dict[str, Any]:
    """A chunk of a chat completion."""
    return {"id": "chat-1", "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": reason}]}
