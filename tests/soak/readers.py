"""Row 15: clients that do not read, read a few bytes at a time, or reset, beside clients that behave."""

from __future__ import annotations

import random
import threading
import time

from tests.engine.fakes import eventually
from tests.server.fakes import OPEN, RawStream, endless, events, get, outcomes, send
from yaie_magic.server.background import BackgroundServer

from .figure import Figure
from .serving import megabytes, serving, unsound

SEND_TIMEOUT = 3.0
WINDOW_S = 2.0
GOOD, LETTERS = 4, 60
LETTER, TOKEN = "b", 65
LONG = {"prompt": "x", "max_tokens": 240, "ignore_eos": True, "n": 8, "logprobs": 20, "stream": True}
"""More than the system keeps for a connection, so that a client that does not read is noticed."""


class Good:
    """A client that streams the same answer again and again."""

    def __init__(self, server: BackgroundServer) -> None:
        self.server, self.ended = server, threading.Event()
        self.answers, self.seconds = 0, 0.0
        self.faults: list[str] = []
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self) -> None:
        """Until told to end."""
        body = {"prompt": "good", "max_tokens": LETTERS, "ignore_eos": True, "stream": True}
        while not self.ended.is_set():
            start = time.monotonic()
            answer = send(self.server, "/generate", body)
            text = "".join(event["text"] for event in events(answer.content) if event != "[DONE]")
            self.answers, self.seconds = self.answers + 1, self.seconds + time.monotonic() - start
            if answer.status_code != 200 or text != LETTER * LETTERS:
                self.faults.append(f"a client that reads got {answer.status_code} {text!r}"[:200])


def rate(server: BackgroundServer, seconds: float) -> tuple[float, list[str]]:
    """Tokens a second of the clients that read, for so long."""
    clients = [Good(server) for _ in range(GOOD)]
    for client in clients:
        client.thread.start()
    time.sleep(seconds)
    for client in clients:
        client.ended.set()
    for client in clients:
        client.thread.join(120)
    faults = [fault for client in clients for fault in client.faults]
    faults += ["a client that reads hangs" for client in clients if client.thread.is_alive()]
    return sum(client.answers * LETTERS / max(client.seconds, 1e-9) for client in clients), faults


def crawl(stream: RawStream, ended: threading.Event) -> None:
    """A kilobyte a second."""
    try:
        while not ended.wait(0.25) and stream.sock.recv(256):
            pass
    except OSError:
        return


def bad_readers(size: int, seed: int) -> Figure:
    """`size` clients of each kind, all at once."""
    chance, ended = random.Random(seed), threading.Event()
    settings = {"num_blocks": 20_000, "max_num_seqs": 64}
    with serving(settings, send_timeout=SEND_TIMEOUT, max_in_flight=4 * size + 16) as server:
        endless(server.llm, TOKEN, pause=0)
        before, faults = rate(server, WINDOW_S)
        memory, kinds = megabytes(), ["never", "slowly", "reset"] * size
        chance.shuffle(kinds)
        for kind in kinds:
            _bad(server, kind, ended, chance)
        during, more = rate(server, WINDOW_S)
        grown = (megabytes() - memory) / len(kinds)
        start = time.monotonic()
        eventually(lambda: _slow_only(server, size), 10 * SEND_TIMEOUT + 120)
        noticed = time.monotonic() - start
        ended.set()
        found, wrong = _afterwards(server, size)
        faults += more + wrong
    told = f"tokens/s of the others {before:.0f} alone, {during:.0f} beside them; the last unread one ended after "
    told += f"{noticed:.1f} s (deadline {SEND_TIMEOUT:g} s); {grown:+.2f} MB a client"
    counted = f"{found['cancelled']} cancelled, {found['ok']} read to the end, {len(faults)} faults"
    return Figure(f"3 x {size} clients", counted, tuple(faults), told)


def _bad(server: BackgroundServer, kind: str, ended: threading.Event, chance: random.Random) -> None:
    stream = RawStream(server, "/v1/completions", dict(LONG), small_buffers=True)
    if kind == "slowly":
        threading.Thread(target=crawl, args=(stream, ended), daemon=True).start()
    elif kind == "reset":
        time.sleep(chance.random() * 0.02)
        stream.reset()


def _slow_only(server: BackgroundServer, slow: int) -> bool:
    """Those that read a little may go on; the others must be gone."""
    return server.num_active <= slow


def _afterwards(server: BackgroundServer, size: int) -> tuple[dict[str, int], list[str]]:
    """The outcomes counted, and what is wrong when everybody has gone."""
    while OPEN:
        OPEN.pop().close()
    eventually(lambda: not server.llm.running() and server.num_active == 0, 120)
    found = outcomes(server)
    faults = unsound(server)
    if found["error"] or found["rejected"] or found["busy"]:
        faults.append(f"counted {found}")
    if found["cancelled"] < 2 * size:
        faults.append(f"{size} never read and {size} reset, {found['cancelled']} were cancelled")
    if get(server, "/health").status_code != 200:
        faults.append("/health does not answer")
    return found, faults
