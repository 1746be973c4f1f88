"""A sound model folder, made once per module and copied for each test that spoils it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.loading.folders import sound_folder


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sound_folder(tmp_path_factory.mktemp("sound") / "model")


@pytest.fixture
def folder(template: Path, tmp_path: Path) -> Path:
    shutil.copytree(template, tmp_path / "model")
    return tmp_path / "model"
