"""Runs one target under atheris, or replays one input: `./scripts/fuzz TARGET [--seconds N] [--replay FILE]`."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

SLOWEST_S = 5
MOST_MB = 1024
"""What one input may take, and the process in all; a replay has the same bounds."""


def main(arguments: list[str]) -> int:
    """Exit code 0: nothing found; 1: a fault, with the file that shows it; 2: a wrong call."""
    parser = argparse.ArgumentParser(
        "fuzz", description="Fuzz a parser of ours, or replay one input.", allow_abbrev=False
    )
    parser.add_argument("target", nargs="?", help="which one; without it the targets are listed")
    parser.add_argument("--seconds", type=int, default=60, help="how long (default 60)")
    parser.add_argument("--seed", type=int, default=1, help="of the random inputs (default 1)")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="run this input alone")
    given = parser.parse_args(arguments)
    if given.seconds < 1:
        parser.error(f"--seconds {given.seconds}: at least 1")
    return _replay(given.target, given.replay) if given.replay else _fuzz(given.target, given.seconds, given.seed)


def _known(name: str | None) -> bool:
    from tests.fuzz.targets import TARGETS

    if name in TARGETS:
        return True
    print(f"fuzz: {'targets' if name is None else f'unknown target {name}; there are'}: {', '.join(TARGETS)}")
    return False


def _replay(name: str | None, path: Path) -> int:
    from tests.fuzz.alone import harm
    from tests.fuzz.targets import TARGETS

    if not _known(name):
        return 2
    try:
        data = path.read_bytes()
    except OSError as error:
        print(f"fuzz: cannot read {path}: {error.strerror}")
        return 2
    found = harm(TARGETS[name or ""], data, SLOWEST_S, MOST_MB)
    print(f"fuzz: {name}: {path.name} {f'does harm: {found}' if found else 'does no harm'}")
    return 1 if found else 0


def _fuzz(name: str | None, seconds: int, seed: int) -> int:
    import atheris

    with atheris.instrument_imports(include=["yaie_engine", "yaie_magic", "yaie_widgets"]):
        from tests.fuzz.targets import CORPUS, TARGETS
    if not _known(name):
        return 0 if name is None else 2
    target = TARGETS[name or ""]
    found = Path(tempfile.mkdtemp(prefix=f"yaie-fuzz-{name}-"))
    print(f"fuzz: {name} for {seconds} s, seed {seed}; inputs that break it go to {found}", flush=True)
    grown = tempfile.mkdtemp(prefix="yaie-fuzz-corpus-")
    options = [f"-max_total_time={seconds}", f"-seed={seed}", f"-timeout={SLOWEST_S}", f"-rss_limit_mb={MOST_MB}"]
    options += [
        f"-artifact_prefix={found}/",
        "-max_len=4096",
        "-print_final_stats=1",
        grown,
        str(CORPUS / (name or "")),
    ]
    atheris.Setup([sys.argv[0], *options], lambda data: target(bytes(data)))
    atheris.Fuzz()  # ends the process
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
