"""How long a comparison will take, roughly: said before it begins, from what the peers did elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from yaie_magic.bench.workloads import Workload

from .peer import PEERS

CORES, BYTES = 2, 405_000_000
"""Of the machine and the model (100M, as it lies on disk) to which the speeds belong."""
LOAD_S, COMPILE_S = 8.0, 90.0
"""To load a peer; to compile for one workload."""
CHECK = 2.0
"""How many times as long float32 takes."""


@dataclass(frozen=True, slots=True)
class Speed:
    """Tokens a second: of prompts, of one answer, of many answers together."""

    prompt: float
    one: float
    many: float

    def seconds(self, workload: Workload) -> float:
        """One repetition. What a cache spares is not left out: an estimate is rather too long."""
        prompt, made = sum(len(ask.prompt) for ask in workload.asks), sum(ask.tokens for ask in workload.asks)
        rate = self.many if workload.at_once and len(workload.asks) > 1 else self.one
        return prompt / self.prompt + made / rate


SPEEDS = {
    "yaie": Speed(1900, 125, 450),
    "generate": Speed(1650, 43, 150),
    "compiled": Speed(1650, 60, 150),
    "continuous": Speed(1300, 35, 140),
    "llama.cpp": Speed(1300, 135, 260),
    "in place": Speed(1900, 43, 150),
}


def estimate(
    peers: Iterable[str],
    workloads: Mapping[str, Workload],
    rounds: int,
    check: Mapping[str, tuple[int, int]],
    scale: float,
) -> float:
    """Seconds, when nobody disturbs; `check` says how much of which workloads is compared, as `CHECKED` does; `scale`
    is of `scale_of`."""
    total = 0.0
    for name in peers:
        peer, speed = PEERS[name], SPEEDS[name]
        total += LOAD_S * (2 if check else 1)
        for workload in workloads.values():
            if peer.declines(workload.name):
                continue
            once = speed.seconds(workload) * scale
            total += once * (rounds + (1 if peer.compiles else 0.2)) + COMPILE_S * peer.compiles
            if workload.name in check and not peer.yardstick:
                total += CHECK * scale * speed.seconds(workload.part(*check[workload.name]))
    return total


def scale_of(folder: Path, cores: int) -> float:
    """How many times as long everything takes as on the machine and with the model of the speeds."""
    size = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    return max(size, BYTES // 100) / BYTES * CORES / max(1, cores)


def told(seconds: float, rules_tries: int, minutes: float) -> str:
    """In words."""
    most = f"; no round and no comparison of outputs begins after {minutes:g} minutes (--minutes)" if minutes else ""
    return (
        f"about {seconds / 60:.0f} minutes when nobody disturbs, where each repetition is disturbed up to "
        f"{rules_tries * seconds / 60:.0f}{most}"
    )
