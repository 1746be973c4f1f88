"""Row 14: ten times as many clients as can be served."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from typing import Any

from tests.engine.fakes import eventually
from tests.server.fakes import outcomes, send
from tests.server.test_load import PROMPTS, web
from yaie_magic.server.background import BackgroundServer

from .figure import Figure, slowest
from .serving import megabytes, serving, unsound

FITS = 4
CLIENTS = 10 * FITS


class Crowd:
    """Clients that come again as soon as they are answered; a refused one waits as long as it is told, in tenths."""

    def __init__(self, server: BackgroundServer, seed: int) -> None:
        self.server, self.chance = server, random.Random(seed)
        self.seen: Counter[int] = Counter()
        self.admitted: list[float] = []
        self.faults: list[str] = []

    async def run(self, seconds: float) -> None:
        """All at once."""
        end = time.monotonic() + seconds
        async with web(self.server) as session:
            await asyncio.gather(*(self.client(session, end) for _ in range(CLIENTS)))

    async def client(self, session: Any, end: float) -> None:
        """One."""
        while time.monotonic() < end:
            start = time.monotonic()
            body = {"prompt": self.chance.choice(PROMPTS), "max_tokens": 16, "ignore_eos": True}
            answer = await session.post("/generate", json=body)
            self.seen[answer.status_code] += 1
            if answer.status_code == 200:
                self.admitted.append(time.monotonic() - start)
            elif answer.status_code != 429 or not answer.headers.get("retry-after", "").isdigit():
                self.faults.append(f"{answer.status_code}, Retry-After {answer.headers.get('retry-after')}")
            else:
                await asyncio.sleep(int(answer.headers["retry-after"]) / 10)


def overload(size: int, seed: int) -> Figure:
    """`size` seconds over an engine that runs two and lets two wait."""
    settings = {"model": "tiny", "block_size": 16, "num_blocks": 1024, "max_num_seqs": 2, "max_waiting": 2}
    with serving(settings) as server:
        send(server, "/generate", {"prompt": "x", "max_tokens": 2})
        memory, crowd = megabytes(), Crowd(server, seed)
        asyncio.run(crowd.run(size))
        start = time.monotonic()
        again = send(server, "/generate", {"prompt": PROMPTS[0], "max_tokens": 16})
        recovery, seen = time.monotonic() - start, crowd.seen
        eventually(lambda: not server.llm.running() and server.num_active == 0)
        counted, faults = outcomes(server), [*crowd.faults, *unsound(server)]
        if again.status_code != 200:
            faults.append(f"when they had gone: {again.status_code}")
        if not seen[429]:
            faults.append("nobody was told to come back")
        if (counted["ok"], counted["busy"], counted["error"]) != (seen[200] + 2, seen[429], 0):
            faults.append(f"counted {counted}, seen {dict(seen)}")
        grown = megabytes() - memory
    times = f"admitted: {slowest(crowd.admitted)}; one alone afterwards {recovery:.2f} s; memory {grown:+.0f} MB"
    found = f"{seen[200]} served, {seen[429]} told to come back, {len(faults)} otherwise"
    return Figure(f"{CLIENTS} clients, {size} s", found, tuple(faults), times)
