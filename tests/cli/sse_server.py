"""A server whose answers a test writes down: pieces of bytes with pauses between them, for any request."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from typing import Any

Step = bytes | float
"""Bytes to send, or seconds to wait before the next ones."""
Script = Callable[[int, dict[str, Any]], list[Step]]

OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


def event(**choice: Any) -> bytes:
    """A chunk with one choice."""
    return b"data: " + json.dumps({"choices": [{"index": 0, **choice}]}).encode() + b"\n\n"


def usage(read: int, made: int) -> bytes:
    """The chunk that counts tokens."""
    found = {"choices": [], "usage": {"prompt_tokens": read, "completion_tokens": made}}
    return b"data: " + json.dumps(found).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


class SseServer:
    """On a thread with a loop of its own. `one_at_a_time` makes requests wait for each other, as a busy engine does."""

    def __init__(self, script: Script, one_at_a_time: bool = False) -> None:
        self._script = script
        self.bodies: list[dict[str, Any]] = []
        self.heads: list[str] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._most = 1 if one_at_a_time else 1000
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        assert self._ready.wait(60)

    async def _serve(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        self._room = asyncio.Semaphore(self._most)
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._ready.set()
        async with server:
            await self._end.wait()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._play(reader, writer)
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _play(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        lines = head.lower().splitlines()
        length = next((int(line.split(":")[1]) for line in lines if line.startswith("content-length:")), 0)
        body = json.loads(await reader.readexactly(length)) if length else {}
        number = len(self.bodies)
        if head.startswith("POST"):
            self.bodies.append(body)
        self.heads.append(head)
        async with self._room:
            for step in self._script(number, body) if head.startswith("POST") else [MODELS]:
                if isinstance(step, float):
                    await asyncio.sleep(step)
                    continue
                writer.write(step)
                await writer.drain()

    def stop(self) -> None:
        """End the thread."""
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(60)


_LIST = json.dumps({"data": [{"id": "scripted"}]}).encode()
MODELS = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n"
    + f"Content-Length: {len(_LIST)}\r\n\r\n".encode()
    + _LIST
)
