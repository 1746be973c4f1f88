"""What travels to a machine without network, and what of it is used there."""

from __future__ import annotations

import ast
import importlib.metadata
import sys
import zipfile
from pathlib import Path

import pytest

from benchmarks.gpu import bundle
from benchmarks.gpu.bundle import GROUPS, Group

PYDANTIC = GROUPS[0]


def pretend(monkeypatch: pytest.MonkeyPatch, versions: dict[str, str | None]) -> None:
    """These packages are installed in these versions; all others are as new as needed."""
    monkeypatch.setattr(bundle, "installed", lambda name: versions.get(name, "999"))


def wheel(folder: Path, name: str, *files: str) -> None:
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as archive:
        for file in files:
            archive.writestr(file, "here = True\n")


def test_versions_are_compared_by_their_numbers() -> None:
    assert bundle.version_key("4.14.1") < bundle.version_key("4.16.0.post1") < bundle.version_key("10.0")
    assert bundle.version_key("2.11.0+cu130")[:2] == (2, 11)
    assert bundle.version_key("1.2rc1") == (1, 2) and bundle.version_key("unknown") == ()


def test_a_group_is_lacking_when_one_is_missing_or_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, {})
    assert bundle.lacking(PYDANTIC) == ""
    pretend(monkeypatch, {"pydantic_core": None})
    assert bundle.lacking(PYDANTIC) == "pydantic_core is missing"
    pretend(monkeypatch, {"typing_extensions": "4.12.2"})
    assert bundle.lacking(PYDANTIC) == "typing_extensions 4.12.2 is older than 4.14.1"


@pytest.mark.parametrize("package", ["cuda-core", "cuda-bindings"])
def test_an_old_pathfinder_is_replaced_with_those_that_use_it(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    group = next(one for one in GROUPS if package in one.packages)
    wants = next(line for line in importlib.metadata.requires(package) or [] if line.startswith("cuda-pathfinder"))
    wanted = wants.partition(">=")[2]
    assert wanted and bundle.version_key(group.least["cuda-pathfinder"]) >= bundle.version_key(wanted)
    there = {"cuda-core": "1.2.0", "cuda-bindings": "13.0.0", "cuda-pathfinder": "1.3.3"}
    monkeypatch.setattr(bundle, "installed", there.get)
    assert bundle.lacking(group) == "cuda-pathfinder 1.3.3 is older than 1.4.2"


def test_only_what_is_lacking_is_unpacked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(bundle, "GROUPS", (Group(("one-thing", "Other"), {}), Group(("third",), {"third": "2"})))
    for name in ("one_thing", "other", "third"):
        wheel(tmp_path, name, f"{name}/__init__.py")
    pretend(monkeypatch, {"one-thing": None})
    done = bundle.unpack_missing(tmp_path / "site", tmp_path)
    assert done == {"one_thing 1.0": "one-thing is missing", "other 1.0": "one-thing is missing"}
    assert sorted(path.name for path in (tmp_path / "site").iterdir()) == ["one_thing", "other"]


def test_wheels_that_are_not_there_are_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pretend(monkeypatch, {"pydantic": None})
    with pytest.raises(FileNotFoundError, match=r"pydantic is missing, and .* run gpu_check --prepare first"):
        bundle.unpack_missing(tmp_path / "site", tmp_path)


def test_everything_that_travels_is_pinned() -> None:
    names = [name for group in GROUPS for name in group.packages]
    pins = bundle.pinned(names)
    assert len(pins) == len(names) and all("==" in pin for pin in pins)


def test_the_checkout_is_small_enough_to_travel() -> None:
    """The wheels and kernels take 20 MiB at the most; see `gpu_check --prepare`, which measures."""
    if not (bundle.ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    assert bundle.travelling_bytes(folder=bundle.ROOT / "no such folder") < 40 * 2**20


THERE = {"torch", "transformers", "tokenizers", "safetensors", "huggingface_hub", "numpy", "tqdm"}
"""What a machine with PyTorch and transformers has."""
OURS = {"yaie_engine", "yaie_cuda", "benchmarks"}


def imported(path: Path) -> set[str]:
    """Top-level names of the modules that a file imports, wherever in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module.split(".")[0])
    return found


def test_what_engine_and_kernels_import_is_there_or_brought_along() -> None:
    """A new dependency of the engine has to travel, too."""
    brought = {name.lower().replace("-", "_") for group in GROUPS for name in group.packages} | {"cuda"}
    for folder in ("engine/yaie_engine", "cuda/yaie_cuda", "benchmarks/gpu"):
        for path in sorted((bundle.ROOT / folder).rglob("*.py")):
            strange = imported(path) - THERE - OURS - brought - sys.stdlib_module_names
            assert not strange, f"{path}: {strange}"
