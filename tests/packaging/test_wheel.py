"""What the wheel holds, and what it asks for."""

from __future__ import annotations

from email.message import Message
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from .conftest import PACKAGES

PLATFORMS = {
    "linux x86_64": {"sys_platform": "linux", "platform_machine": "x86_64"},
    "linux aarch64": {"sys_platform": "linux", "platform_machine": "aarch64"},
    "windows": {"sys_platform": "win32", "platform_machine": "AMD64"},
    "mac arm64": {"sys_platform": "darwin", "platform_machine": "arm64"},
    "mac x86_64": {"sys_platform": "darwin", "platform_machine": "x86_64"},
}


def required_on(metadata: Message, platform: str) -> set[str]:
    """Names of the packages that a plain install asks for on a platform."""
    wanted = [Requirement(line) for line in metadata.get_all("Requires-Dist", [])]
    environment = {**PLATFORMS[platform], "extra": ""}
    return {item.name for item in wanted if item.marker is None or item.marker.evaluate(environment)}


def test_wheel_files_equal_the_tree(wheel_files: set[str]) -> None:
    tree = {
        f"{name}/{path.relative_to(folder).as_posix()}"
        for name, folder in PACKAGES.items()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and not path.name.endswith((".pyc", ".swp"))
    }
    assert wheel_files == tree


def test_wheel_has_exactly_four_top_level_names(wheel_files: set[str]) -> None:
    assert {name.split("/")[0] for name in wheel_files} == set(PACKAGES)


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_are_marked_as_typed(package: str, wheel_files: set[str]) -> None:
    assert f"{package}/py.typed" in wheel_files


def test_bundled_model_is_in_the_wheel(wheel_files: set[str]) -> None:
    held = {Path(name).name for name in wheel_files if name.startswith("yaie_engine/bundled/tiny/")}
    assert {"model.safetensors", "config.json", "tokenizer.json"} <= held


@pytest.mark.parametrize("platform", ["linux x86_64", "linux aarch64", "windows"])
def test_cuda_packages_where_they_exist(platform: str, metadata: Message) -> None:
    assert {"cuda-core", "cuda-bindings", "nvidia-cuda-nvrtc"} <= required_on(metadata, platform)


@pytest.mark.parametrize("platform", ["mac arm64", "mac x86_64"])
def test_no_cuda_packages_elsewhere(platform: str, metadata: Message) -> None:
    assert not {name for name in required_on(metadata, platform) if name.startswith(("cuda", "nvidia"))}


def test_renderer_only_where_it_has_wheels(metadata: Message) -> None:
    offered = {name for name in PLATFORMS if "graphviz-pure" in required_on(metadata, name)}
    assert offered == set(PLATFORMS) - {"mac x86_64"}


def test_one_console_script_and_python_range(metadata: Message, wheel_python: Path) -> None:
    assert metadata["Requires-Python"] == ">=3.11"
    assert (wheel_python.parent / "yaie").is_file()
