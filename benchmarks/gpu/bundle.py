"""What travels to a machine without network: wheels it may lack, and compiled kernels. `--prepare` makes the folder.

The machine needs Python, torch, transformers and numpy with what they bring. What else the engine imports is brought
along as wheels, which are unpacked only where a package is missing or older than `pyproject.toml` allows.
"""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "gpu_check"
WHEELS, KERNELS = FOLDER / "wheels", FOLDER / "kernels"
MOST_BYTES = 60 * 2**20
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")


@dataclass(frozen=True, slots=True)
class Group:
    """Packages that go together: all are unpacked if one is missing or older than `least`."""

    packages: tuple[str, ...]
    least: Mapping[str, str]


GROUPS = (
    Group(
        ("pydantic", "pydantic_core", "annotated-types", "typing-inspection", "typing_extensions"),
        {"pydantic": "2.10", "annotated-types": "0.6", "typing-inspection": "0.4", "typing_extensions": "4.14.1"},
    ),
    Group(
        ("cuda-core", "cuda-bindings", "cuda-pathfinder"),
        # What cuda-core 1.2 wants; a pathfinder before that does not find a driver's libcuda.so.1.
        {"cuda-core": "1.2", "cuda-bindings": "12.9", "cuda-pathfinder": "1.4.2"},
    ),
    Group(("Jinja2", "MarkupSafe"), {"Jinja2": "3.1.6"}),
    Group(("psutil",), {"psutil": "5.9"}),
)


def version_key(version: str) -> tuple[int, ...]:
    """A version's leading numbers; what follows them ("rc1", "+cu130") does not count."""
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, found[0].split("."))) if found else ()


def installed(name: str) -> str | None:
    """The version of a package here; None when there is none."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def lacking(group: Group) -> str:
    """Why the group has to be unpacked; "" when this Python has all of it."""
    for name in group.packages:
        there, least = installed(name), group.least.get(name)
        if there is None:
            return f"{name} is missing"
        if least is not None and version_key(there) < version_key(least):
            return f"{name} {there} is older than {least}"
    return ""


def wheels_of(group: Group, folder: Path) -> list[Path]:
    """The group's wheels in `folder`; names are compared as wheels spell them."""
    wanted = {name.lower().replace("-", "_") for name in group.packages}
    return sorted(path for path in folder.glob("*.whl") if path.name.split("-")[0].lower() in wanted)


def unpack_missing(site: Path, wheels: Path = WHEELS) -> dict[str, str]:
    """Unpack into `site` what this Python lacks; what was unpacked, with the reason.

    Raises:
        FileNotFoundError: something is lacking and its wheels are not there.
    """
    done: dict[str, str] = {}
    for group in GROUPS:
        reason = lacking(group)
        if not reason:
            continue
        found = wheels_of(group, wheels)
        if len(found) != len(group.packages):
            raise FileNotFoundError(f"{reason}, and {wheels} does not hold its wheels: run gpu_check --prepare first")
        for wheel in found:
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(site)
            name, version = wheel.name.split("-")[:2]
            done[f"{name} {version}"] = reason
    return done


def pinned(names: Iterable[str], constraints: Path = ROOT / "constraints.txt") -> list[str]:
    """`name==version` of each package, as the tests run with."""
    lines = constraints.read_text(encoding="utf-8").splitlines()
    pins = {line.split("==")[0].lower().replace("-", "_"): line for line in lines if "==" in line}
    return [pins[name.lower().replace("-", "_")] for name in names]


def download_wheels(python: str, folder: Path = WHEELS) -> None:
    """Fetch the wheels of all groups for a Linux x86-64 machine with that Python ("3.12").

    Raises:
        subprocess.CalledProcessError: pip could not get one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.whl"):
        old.unlink()
    names = [name for group in GROUPS for name in group.packages]
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"]
    command += ["--only-binary=:all:", "--python-version", python, "--implementation", "cp", "--dest", str(folder)]
    for platform in PLATFORMS:
        command += ["--platform", platform]
    subprocess.run([*command, *pinned(names)], check=True)


def travelling_bytes(root: Path = ROOT, folder: Path = FOLDER) -> int:
    """Bytes of the checkout without what git ignores, and of the prepared folder."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        capture_output=True,
        check=True,
    ).stdout.split(b"\0")
    paths = {root / name.decode() for name in listed if name}
    paths |= {path for path in folder.rglob("*") if path.is_file()}
    return sum(path.stat().st_size for path in paths if path.is_file())
