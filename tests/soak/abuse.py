"""Row 17: bytes that no honest client sends, by the hundred, while /health is asked all the time."""

from __future__ import annotations

import random
import re
import socket
import threading
import time
from urllib.parse import urlsplit

from tests.engine.fakes import eventually
from tests.server.fakes import get, send
from yaie_magic.server.background import BackgroundServer

from .figure import Figure, slowest
from .serving import serving, unsound

BODY = b'{"prompt": "x", "max_tokens": 1}'
HOSTS = (
    b"127.0.0.1",
    b"localhost",
    b"[::1]",
    b"evil.example",
    b"127.0.0.1.evil.example",
    b"",
    b"127.0.0.1:evil",
    b"\xff",
)
METHODS = (b"POST", b"GET", b"BREW", b"post", b"OPTIONS", b"TRACE", b"\x00")
PATHS = (
    b"/generate",
    b"/v1/completions",
    b"/health",
    b"/../../etc/passwd",
    b"//generate",
    b"*",
    b"/%ff",
    b"/" + b"a" * 9000,
)
LINES = (
    b"Content-Type: application/json", b"Content-Type: text/plain", b"Transfer-Encoding: chunked",
    b"Expect: 100-continue",
    b"Content-Length: 5", b"Content-Length: -1", b"Content-Length: 99999999999999999999", b"Origin: http://evil.example",
    b"Sec-Fetch-Site: cross-site", b"X: " + b"y" * 40_000, b"Range: bytes=" + b"0-," * 500, b"\x00: \x01", b"no colon",
    b"Upgrade: websocket", b"Connection: upgrade", b" folded", b"Host: twice", b"Content-Encoding: gzip",
)  # fmt: skip
TAILS = (b"", BODY, BODY[:9], b"5\r\n" + BODY + b"\r\n", b"ffffffffffffffff\r\n", b"\xff" * 100, BODY * 3, b"[" * 3000)
STATUS = re.compile(rb"HTTP/1\.1 (\d{3})")


def request(chance: random.Random) -> bytes:
    """A head and a body that need not fit each other."""
    if chance.random() < 0.1:
        return chance.randbytes(chance.randrange(1, 3000))
    lines = [b"%s %s HTTP/1.1" % (chance.choice(METHODS), chance.choice(PATHS)), b"Host: " + chance.choice(HOSTS)]
    lines += chance.sample(LINES, chance.randrange(4))
    end = chance.choice((b"\r\n", b"\r\n", b"\r\n", b"\n"))
    data = end.join(lines) + end + end + chance.choice(TAILS)
    return data[: chance.randrange(1, len(data))] if chance.random() < 0.2 else data * chance.choice((1, 1, 1, 4))


def exchange(server: BackgroundServer, data: bytes, chance: random.Random) -> list[int]:
    """Send in some pieces, then read what comes; a server that hangs up early is right, too."""
    place = urlsplit(server.url)
    said = b""
    with socket.create_connection((place.hostname, place.port), timeout=60) as sock:
        try:
            cut = chance.randrange(len(data))
            for piece in (data[:cut], data[cut:]):
                sock.sendall(piece)
            sock.shutdown(socket.SHUT_WR)
            while len(said) < 2**20 and (chunk := sock.recv(65536)):
                said += chunk
        except (ConnectionError, BrokenPipeError):
            pass
    return [int(code) for code in STATUS.findall(said)]


class Watch:
    """Asks for /health again and again."""

    def __init__(self, server: BackgroundServer) -> None:
        self.server, self.ended = server, threading.Event()
        self.seconds: list[float] = []
        self.faults: list[str] = []
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self) -> None:
        """Until told to end."""
        while not self.ended.wait(0.02):
            start = time.monotonic()
            status = get(self.server, "/health").status_code
            self.seconds.append(time.monotonic() - start)
            if status != 200:
                self.faults.append(f"/health said {status}")


def abuse(size: int, seed: int) -> Figure:
    """`size` connections, four at a time."""
    codes: dict[int, int] = {}
    faults: list[str] = []
    with serving(header_timeout=1.0, body_timeout=1.0) as server:
        watch = Watch(server)
        watch.thread.start()

        def some(number: int) -> None:
            chance = random.Random(seed * 4 + number)
            for _ in range(-(-size // 4)):
                data = request(chance)
                try:
                    found = exchange(server, data, chance)
                except OSError as error:
                    faults.append(f"{error!r} for {data[:100]!r}")
                    continue
                for code in found:
                    codes[code] = codes.get(code, 0) + 1
                    if code >= 500 and code != 501:
                        faults.append(f"{code} for {data[:200]!r}")

        threads = [threading.Thread(target=some, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        watch.ended.set()
        watch.thread.join(60)
        eventually(lambda: not server.llm.running() and server.num_active == 0)
        if send(server, "/generate", {"prompt": "x", "max_tokens": 1}).status_code != 200:
            faults.append("an honest request is not served afterwards")
        faults += watch.faults + unsound(server)
    told = ", ".join(f"{code}: {count}" for code, count in sorted(codes.items()))
    health = f"/health meanwhile: {slowest(watch.seconds)}"
    return Figure(f"{4 * -(-size // 4)} connections", f"{told}; {len(faults)} faults", tuple(faults), health)
