"""Damaged and hostile model folders by the hundred: each loads or ends in one clear line, quickly, and runs no code."""

from __future__ import annotations

import json
import os
import random
import shutil
import struct
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from tests.loading.folders import edit, gguf_string, plant_canaries, write_raw_header
from yaie_engine.config import EngineConfig
from yaie_engine.errors import ModelLoadError
from yaie_engine.loader import load_model
from yaie_engine.models import gguf
from yaie_engine.models.gguf import screen_gguf
from yaie_engine.models.screen import screen
from yaie_engine.models.tensor_header import read_header

torch.set_num_threads(1)
pytestmark = pytest.mark.filterwarnings("ignore")
SLOWEST_S = 5
MOST_GROWTH = 200 * 2**20
VALUES: list[Any] = [
    None, True, False, -1, 0, 1, 2**31, 2**63, 2**200, 1e308, 0.5, "", "x", "../../x", "evil/kernel", "\ud800", [], {},
    [1], [[]], {"auto_map": "x"}, {"x": {}}, "a" * 10_000, [0] * 1000,
]  # fmt: skip
KEYS = ["auto_map", "trust_remote_code", "_attn_implementation_internal", "quantization_config", "text_config"]
KEYS += ["rope_scaling", "rope_parameters", "layer_types", "architectures", "model_type", "tokenizer_class", "dtype"]


def change_config(folder: Path, chance: random.Random) -> None:
    """One to three keys with values that do not belong there."""
    path = folder / chance.choice(["config.json", "config.json", "tokenizer_config.json", "generation_config.json"])
    content = json.loads(path.read_text()) if path.exists() else {}
    for _ in range(chance.randint(1, 3)):
        content[chance.choice([*content, *KEYS])] = chance.choice(VALUES)
    path.write_text(json.dumps(content))


def damage_bytes(folder: Path, chance: random.Random) -> None:
    """A file cut short, with changed bytes, or with some twice."""
    path = folder / chance.choice(["config.json", "model.safetensors", "tokenizer.json"])
    data = bytearray(path.read_bytes())
    near = min(len(data), 2000)
    kind = chance.randrange(3)
    if kind == 0:
        del data[chance.randrange(len(data)) :]
    elif kind == 1:
        for _ in range(chance.randint(1, 4)):
            data[chance.randrange(near)] = chance.randrange(256)
    else:
        at = chance.randrange(near)
        data[at:at] = data[at : at + chance.randint(1, 40)]
    path.write_bytes(data)


@pytest.mark.parametrize("count", [60, pytest.param(300, marks=pytest.mark.full)])
def test_mutated_folders_end_in_one_line(template: Path, tmp_path: Path, count: int) -> None:
    seed = 18
    print(f"seed {seed}")
    chance = random.Random(seed)
    load_model(EngineConfig(model=str(template), dtype="float32"))
    process = psutil.Process()
    before, refused = process.memory_info().rss, 0
    for number in range(count):
        folder = tmp_path / f"m{number}"
        shutil.copytree(template, folder)
        plant_canaries(folder, tmp_path / "executed")
        (change_config if number % 2 else damage_bytes)(folder, chance)
        started = time.monotonic()
        try:
            load_model(EngineConfig(model=str(folder), dtype="float32"))
        except ModelLoadError as error:
            refused += 1
            assert "\n" not in str(error), error
        assert time.monotonic() - started < 10 * SLOWEST_S, number
        shutil.rmtree(folder)
    assert refused > count // 4
    assert process.memory_info().rss - before < MOST_GROWTH
    assert not (tmp_path / "executed").exists()


def special(make: Callable[[Path], object], name: str) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        (folder / name).unlink()
        make(folder / name)

    return spoil


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
@pytest.mark.parametrize(
    "make",
    [
        os.mkfifo,
        lambda path: path.symlink_to("/dev/zero"),
        lambda path: path.mkdir(),
        lambda path: path.symlink_to(path),
    ],
    ids=["a pipe that nobody writes", "an endless device", "a folder", "a link to itself"],
)
def test_files_that_are_none_are_refused(folder: Path, name: str, make: Callable[[Path], object]) -> None:
    special(make, name)(folder)
    with pytest.raises(ModelLoadError) as caught:
        screen(folder)
    assert "\n" not in str(caught.value)


def test_a_shape_of_a_million_numbers_is_refused_at_once(tmp_path: Path) -> None:
    """Their product alone would take minutes."""
    path = tmp_path / "x.safetensors"
    entry = {"dtype": "F32", "shape": [2**62] * 10**6, "data_offsets": [0, 8]}
    write_raw_header(path, {"a": entry}, b"\0" * 8)
    started = time.monotonic()
    with pytest.raises(ModelLoadError, match="does not fit the file"):
        read_header(path)
    assert time.monotonic() - started < 10 * SLOWEST_S


def test_the_head_of_a_gguf_is_bounded_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many entries, each within its own limit, are together more than a library should keep."""
    monkeypatch.setattr(gguf, "MOST_HEAD", 2**20)
    entry = gguf_string("k") + struct.pack("<I", 8) + gguf_string("v" * 2**18)
    path = tmp_path / "x.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 8) + entry * 8)
    with pytest.raises(ModelLoadError, match="its head is longer than 1048576 bytes"):
        screen_gguf(path)


def test_arrays_of_a_gguf_are_passed_over_unread(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    entry = gguf_string("k") + struct.pack("<IIQ", 9, 12, 2**22)
    with path.open("wb") as file:
        file.write(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + entry)
        file.truncate(file.tell() + 2**25)
    tracemalloc.start()
    try:
        assert screen_gguf(path) == {}
        assert tracemalloc.get_traced_memory()[1] < 2**22
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "value", [{"a": {"kernel_x": "evil/k@v"}}, [{"x_kernel": ["evil/k"]}], {"kernels": {"n": {"m": "e/k"}}}]
)
def test_kernel_names_are_found_at_any_depth(folder: Path, value: object) -> None:
    edit(folder, extra=value)
    with pytest.raises(ModelLoadError, match="kernel to download"):
        screen(folder)


@pytest.mark.parametrize(
    "name", ["vocab.json", "merges.txt", "chat_template.jinja", "additional_chat_templates/a.jinja"]
)
def test_no_file_beside_makes_the_load_wait_or_fill_memory(folder: Path, name: str) -> None:
    """A pipe without a writer would be read for ever, a file with a hole of terabytes whole."""
    (folder / name).parent.mkdir(exist_ok=True)
    os.mkfifo(folder / name)
    with pytest.raises(ModelLoadError, match="is no plain file"):
        load_model(EngineConfig(model=str(folder), dtype="float32"))
    (folder / name).unlink()
    with (folder / name).open("wb") as file:
        file.truncate(2**32)
    with pytest.raises(ModelLoadError, match="bytes long, allowed are"):
        load_model(EngineConfig(model=str(folder), dtype="float32"))
