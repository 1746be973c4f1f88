"""What a peer is: something that answers a workload, in a process of its own."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import metadata, util
from pathlib import Path
from typing import Any, Protocol

from yaie_magic.bench.trial import Trial
from yaie_magic.bench.workloads import WORKLOADS, Workload


@dataclass(frozen=True, slots=True)
class Setup:
    """What every peer gets alike. `room` is the longest request in tokens, `at_most` the most that run at once."""

    model: str
    gguf: str
    dtype: str
    threads: int
    room: int
    at_most: int
    llama_server: str = ""
    scratch: str = ""

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        return asdict(self)


class Answering(Protocol):
    """A peer that is loaded. `about` says which version it is and what else a reader should know."""

    about: dict[str, str]

    def run(self, workload: Workload) -> Trial:
        """One repetition; nothing that an earlier one left behind may help."""

    def close(self) -> None:
        """End it."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A peer by name. `module` holds `open_peer(Setup) -> Answering`; `without` says which workloads it has not, and
    why. A `yardstick` is no competitor: it does what nobody can do without. What `compiles` for each shape is not warm
    before it has seen a whole workload."""

    name: str
    words: str
    module: str
    package: str = ""
    without: tuple[tuple[str, str], ...] = ()
    yardstick: bool = False
    compiles: bool = False

    def missing(self, setup: Setup) -> str:
        """Why it cannot run here; "" when it can."""
        if self.package and util.find_spec(self.package) is None:
            return f"{self.package} is not installed"
        if self.name != "llama.cpp":
            return ""
        if not setup.llama_server:
            return "no --llama-server was given"
        if not os.access(setup.llama_server, os.X_OK):
            return f"{setup.llama_server} is no program"
        if not Path(setup.gguf).is_file():
            return f"there is no {setup.gguf or 'GGUF file: --gguf names it'}"
        return ""

    def declines(self, workload: str) -> str:
        """Why it has no row in a workload; "" when it has one."""
        return dict(self.without).get(workload, "")

    def opener(self) -> Callable[[Setup], Answering]:
        """The function that loads it; imports what it needs."""
        opened: Callable[[Setup], Answering] = importlib.import_module(self.module).open_peer
        return opened


OURS = "yaie"
_ONLY_EDITS = tuple((name, "a yardstick for edits alone") for name in WORKLOADS if name != "W5")
_PREFILLS = tuple((name, "its decode step alone is compiled: see generate") for name in ("W3", "W3s", "W4", "W5"))
_HERE = "benchmarks.comparison"
PEERS: dict[str, Peer] = {
    peer.name: peer
    for peer in (
        Peer(OURS, "YAIE Magic", f"{_HERE}.peer_yaie"),
        Peer("generate", "transformers generate, padded batch", f"{_HERE}.peer_generate", "transformers"),
        Peer(
            "compiled",
            "transformers generate, static cache, torch.compile",
            f"{_HERE}.peer_compiled",
            "transformers",
            _PREFILLS,
            compiles=True,
        ),
        Peer("continuous", "transformers continuous batching", f"{_HERE}.peer_continuous", "transformers"),
        Peer("llama.cpp", "llama.cpp's server", f"{_HERE}.peer_llama"),
        Peer(
            "in place",
            "the edited suffix's prefill, its prefix in place",
            f"{_HERE}.peer_in_place",
            "transformers",
            _ONLY_EDITS,
            yardstick=True,
        ),
    )
}


def version_of(package: str) -> str:
    """The installed version; "unknown" where the package does not say."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "unknown"
