"""Row 17: bytes that no honest client sends, by the hundred: attacks with a name, whose answer is known, and bytes put
together by chance. Meanwhile /health is asked all the time, and the server's loop is watched."""

from __future__ import annotations

import random
import re
import socket
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from tests.engine.fakes import eventually
from tests.server.fakes import get, send
from tests.server.test_guard import BAD_HOSTS
from tests.server.test_raw_http import CASES, HEAD, SMALL, foreign
from yaie_magic.server import ServerConfig
from yaie_magic.server.background import BackgroundServer

from .figure import Figure, slowest
from .loop_lag import loop_lag
from .serving import serving, unsound

CLIENTS = 4
IMPATIENT_S = 0.5
NAMED = {**CASES, **{f"Host: {host}": foreign(host) for host in BAD_HOSTS}}
"""What is sent, and the statuses of the answers."""
STALLED = {
    "no byte": (b"", []),
    "half a head": (b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ", []),
    "half a body": (HEAD + b"Content-Length: 100\r\n\r\n{", [408]),
}
"""Of a client that then says no more: it is hung up on, or told that it took too long."""

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


@dataclass(frozen=True, slots=True)
class Attack:
    """Bytes of one connection. `wanted`: the statuses that they must get; None: any below 500, where chance has made
    them. `stalls`: nothing follows them, and the connection is left open.
    """

    kind: str
    name: str
    data: bytes
    wanted: list[int] | None = None
    stalls: bool = False


def attack(number: int, chance: random.Random) -> Attack:
    """Each named one in turn, every fiftieth time a stalled one, and bytes by chance in between."""
    if number % 50 == 49:
        name = chance.choice(list(STALLED))
        return Attack("stalled", name, *STALLED[name], stalls=True)
    if number % 2:
        name = list(NAMED)[number // 2 % len(NAMED)]
        return Attack("named", name, *NAMED[name])
    return by_chance(chance)


def by_chance(chance: random.Random) -> Attack:
    """Bytes of no meaning, or a head and a body that need not fit each other: whole, cut off, or four times."""
    if chance.random() < 0.1:
        return Attack("noise", "", chance.randbytes(chance.randrange(1, 3000)))
    lines = [b"%s %s HTTP/1.1" % (chance.choice(METHODS), chance.choice(PATHS)), b"Host: " + chance.choice(HOSTS)]
    lines += chance.sample(LINES, chance.randrange(4))
    end = chance.choice((b"\r\n", b"\r\n", b"\r\n", b"\n"))
    data = end.join(lines) + end + end + chance.choice(TAILS)
    if chance.random() < 0.2:
        return Attack("cut off", "", data[: chance.randrange(1, len(data))])
    return Attack("four times", "", data * 4) if chance.random() < 0.25 else Attack("mixed", "", data)


def exchange(server: BackgroundServer, one: Attack, chance: random.Random) -> list[int]:
    """Send in two pieces, then read until the server closes: the statuses that it gave.

    One that hangs up before all was sent is right, too; its answer may be lost with the connection, and then counts as
    the wanted one.
    """
    place, said, reset = urlsplit(server.url), b"", False
    with socket.create_connection((place.hostname, place.port), timeout=60) as sock:
        cut = chance.randrange(len(one.data)) if one.data else 0
        try:
            for piece in (one.data[:cut], one.data[cut:]):
                sock.sendall(piece)
            if one.wanted is None:
                sock.shutdown(socket.SHUT_WR)  # it may promise more than it sends
        except TimeoutError:
            raise
        except OSError:
            reset = True
        try:
            while len(said) < 2**20 and (chunk := sock.recv(65536)):
                said += chunk
        except ConnectionError:
            reset = True
    found = [int(code) for code in STATUS.findall(said)]
    return one.wanted if reset and not found and one.wanted else found


class Watch:
    """Asks for /health again and again."""

    def __init__(self, server: BackgroundServer) -> None:
        self.server, self.ended = server, threading.Event()
        self.seconds: list[float] = []
        self.faults: list[str] = []
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self) -> None:
        """Once, and again until told to end."""
        while not self.seconds or not self.ended.wait(0.02):
            start = time.monotonic()
            status = get(self.server, "/health").status_code
            self.seconds.append(time.monotonic() - start)
            if status != 200:
                self.faults.append(f"/health said {status}")


@dataclass
class Table:
    """For each kind of attack: how often each status was the answer, 0 for none at all; and all that was wrong."""

    codes: dict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    faults: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, one: Attack, found: list[int]) -> None:
        """One connection and its answers."""
        with self._lock:
            self.codes[one.kind].update(found or [0])
            self.faults += self._wrong(one, found)

    def _wrong(self, one: Attack, found: list[int]) -> Iterator[str]:
        if one.wanted is not None and found != one.wanted:
            yield f"{one.kind} attack {one.name!r} got {found}, not {one.wanted}"
        for code in found if one.wanted is None else ():
            if code >= 500 and code != 501:
                yield f"{code} for {one.data[:200]!r}"

    @property
    def told(self) -> str:
        """In words."""
        return "; ".join(f"{kind}: {_counts(self.codes[kind])}" for kind in sorted(self.codes))


def _counts(codes: Counter[int]) -> str:
    return ", ".join(f"{count} x {code or 'closed'}" for code, count in sorted(codes.items()))


def abuse(size: int, seed: int) -> Figure:
    """`size` connections, four at a time."""
    table, each = Table(), -(-size // CLIENTS)
    with serving(**SMALL) as server:
        quick = BackgroundServer(
            server.llm, ServerConfig(port=0, access_log="off", header_timeout=IMPATIENT_S, body_timeout=IMPATIENT_S)
        )
        watch = Watch(server)
        watch.thread.start()

        def some(first: int) -> None:
            chance = random.Random(seed * CLIENTS + first)
            for number in range(first, each * CLIENTS, CLIENTS):
                one = attack(number, chance)
                try:
                    table.add(one, exchange(quick if one.stalls else server, one, chance))
                except OSError as error:
                    table.faults.append(f"{error!r} for {one.kind} {one.name} {one.data[:100]!r}")

        with loop_lag(server) as lag:
            threads = [threading.Thread(target=some, args=(first,)) for first in range(CLIENTS)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            eventually(lambda: bool(lag.seconds))
        watch.ended.set()
        watch.thread.join(60)
        quick.stop()
        faults = table.faults + watch.faults + _afterwards(server)
    beside = f"loop lag: {slowest(lag.seconds)}; /health meanwhile: {slowest(watch.seconds)}"
    return Figure(f"{each * CLIENTS} connections", f"{len(faults)} faults; {table.told}", tuple(faults), beside)


def _afterwards(server: BackgroundServer) -> list[str]:
    """What is wrong when they have gone."""
    eventually(lambda: not server.llm.running() and server.num_active == 0)
    served = send(server, "/generate", {"prompt": "x", "max_tokens": 1}).status_code == 200
    return unsound(server) + ([] if served else ["an honest request is not served afterwards"])
