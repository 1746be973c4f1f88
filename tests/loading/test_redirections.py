"""Keys of a model folder that name other files than the screened ones, or sizes without end: refused in one line."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.loading.folders import edit
from tests.loading.test_gguf import write_model
from yaie_engine.config import EngineConfig
from yaie_engine.errors import ModelLoadError
from yaie_engine.loader import load_model
from yaie_engine.models.screen import screen, screen_tokenizer

torch.set_num_threads(1)
pytestmark = pytest.mark.filterwarnings("ignore")
CONFIG = "tokenizer_config.json"


class _Bomb:
    """What torch.load of a pickle would run."""

    def __init__(self, flag: Path) -> None:
        self.flag = flag

    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
        return os.mkdir, (str(self.flag),)


def adapter(folder: Path, **keys: object) -> None:
    torch.save(_Bomb(folder.parent / "executed"), folder / "adapter_model.bin")
    edit(folder, transformers_weights="adapter_model.bin", **keys)


def index(folder: Path, target: str) -> None:
    outside = folder.parent / Path(target).name
    outside.write_bytes((folder / "model.safetensors").read_bytes())
    names = {"weight_map": {"lm_head.weight": target}}
    (folder / "x.safetensors.index.json").write_text(json.dumps(names))
    edit(folder, transformers_weights="x.safetensors.index.json")


def pipe_below(folder: Path) -> None:
    (folder / "sub").mkdir()
    os.mkfifo(folder / "sub" / "p.safetensors")
    edit(folder, transformers_weights="sub/p.safetensors")


def older_config(folder: Path) -> None:
    """transformers reads the newest config.N.json of this list in place of config.json."""
    other = {**json.loads((folder / "config.json").read_text()), "transformers_weights": "adapter_model.bin"}
    (folder / "config.4.0.0.json").write_text(json.dumps(other))
    adapter(folder)
    edit(folder, transformers_weights=None, configuration_files=["config.4.0.0.json"])


def renamed(folder: Path) -> None:
    adapter(folder)
    edit(folder, transformers_weights=None, attribute_map={"transformers_weights": "x"}, x="adapter_model.bin")


def outside_tokenizer(folder: Path) -> None:
    os.mkfifo(folder.parent / "tokenizer.4.0.json")
    edit(folder, CONFIG, fast_tokenizer_files=["../tokenizer.4.0.json"])


ATTACKS: dict[str, tuple[Callable[[Path], object], str]] = {
    "weights from a pickle": (adapter, "transformers_weights"),
    "weights by an index that leaves": (
        lambda f: index(f, "../outside.safetensors"),
        "transformers_weights",
    ),
    "pickle by an index that leaves": (lambda f: index(f, "../outside.bin"), "transformers_weights"),
    "pipe in a folder below": (pipe_below, "transformers_weights"),
    "weights of a sub-configuration": (
        lambda f: edit(f, text_config={"transformers_weights": "adapter_model.bin"}),
        "transformers_weights",
    ),
    "another configuration": (older_config, "configuration_files"),
    "a key under another name": (renamed, "attribute_map"),
    "another tokenizer": (outside_tokenizer, "fast_tokenizer_files"),
    "arguments by position": (lambda f: edit(f, CONFIG, init_inputs=["/dev/zero"]), "init_inputs"),
    "vocabulary by path": (lambda f: edit(f, CONFIG, vocab_file="/dev/zero"), "vocab_file"),
    "merges by path": (lambda f: edit(f, "special_tokens_map.json", merges_file="/dev/zero"), "merges_file"),
    "vocabulary as a path": (lambda f: edit(f, CONFIG, vocab="/dev/zero"), "vocab"),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_what_names_other_files_is_refused(name: str, folder: Path, tmp_path: Path) -> None:
    spoil, key = ATTACKS[name]
    spoil(folder)
    with pytest.raises(ModelLoadError, match=rf"names (the files|a file) to read \({key}=.*; remove {key}") as caught:
        load_model(EngineConfig(model=str(folder), dtype="float32"))
    assert "\n" not in str(caught.value) and not (tmp_path / "executed").exists()


@pytest.mark.parametrize("key", ["num_labels", "n_labels", "num_decoder_layers", "encoder_layers", "num_mtp_modules"])
@pytest.mark.parametrize("nested", [False, True])
def test_counts_have_a_bound(key: str, nested: bool, folder: Path) -> None:
    edit(folder, **({"text_config": {key: 5_000_000}} if nested else {key: 5_000_000}))
    start = time.thread_time()  # of this thread alone: others may keep the machine busy
    with pytest.raises(ModelLoadError, match=rf"{key}=5000000 is more than"):
        screen(folder)
    assert time.thread_time() - start < 1


def test_keys_that_only_look_like_it_pass(folder: Path) -> None:
    edit(folder, num_labels=3, n_ctx=2**20, mlp_only_layers=[1, 2], num_parameters=7 * 10**9, configuration_files=[])
    edit(folder, CONFIG, tokenizer_file=None, special_tokens_map_file="/old/place", vocab_file=None, extra="x")
    screen(folder)
    screen_tokenizer(folder)


def longer(folder: Path) -> None:
    edit(folder, num_labels=5_000_000)


def another(folder: Path) -> None:
    edit(folder, configuration_files=["config.4.0.0.json"])


@pytest.mark.parametrize("spoil", [longer, another, outside_tokenizer])
def test_the_folder_of_another_tokenizer_is_screened_alike(
    spoil: Callable[[Path], None], folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(folder, tmp_path / "other")
    spoil(tmp_path / "other")
    with pytest.raises(ModelLoadError, match=r"other/[a-z_]*.json.* (is more than|names the files to read)"):
        load_model(EngineConfig(model=str(folder), tokenizer=str(tmp_path / "other"), dtype="float32"))


BESIDE: dict[str, tuple[Callable[[Path], object], str]] = {
    "a pipe": (lambda f: os.mkfifo(f / CONFIG), "is no plain file"),
    "an endless tokenizer": (lambda f: (f / "tokenizer.json").symlink_to("/dev/zero"), "is no plain file"),
    "an adapter": (lambda f: (f / "adapter_config.json").write_text("{}"), "is an adapter"),
    "code": (lambda f: edit(f, CONFIG, auto_map={"AutoTokenizer": ["x.Y", None]}), "code of its own"),
    "another file": (lambda f: edit(f, CONFIG, vocab_file="/dev/zero"), "names a file to read"),
}


@pytest.mark.parametrize("name", BESIDE)
def test_what_is_read_beside_a_gguf_file_is_screened(name: str, tmp_path: Path) -> None:
    spoil, expected = BESIDE[name]
    path = write_model(tmp_path / "tiny.gguf")
    spoil(tmp_path)
    with pytest.raises(ModelLoadError, match=expected):
        load_model(EngineConfig(model=str(path), dtype="float32"))


def test_a_gguf_file_may_lie_among_anything(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "config.json").write_text("[]")
    (tmp_path / "nowhere.txt").symlink_to(tmp_path / "gone")
    assert load_model(EngineConfig(model=str(write_model(tmp_path / "tiny.gguf")), dtype="float32")).hf_tokenizer
