"""Hostile model folders: refused in one clear line, and no code of theirs ever runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.architectures.zoo import BY_NAME
from tests.loading.folders import edit, plant_canaries, write_raw_header, write_weights
from yaie_engine.config import EngineConfig
from yaie_engine.errors import ModelLoadError
from yaie_engine.loader import load_model
from yaie_engine.models.screen import LAYER, LAYERS, screen
from yaie_engine.models.tensor_header import read_header

torch.set_num_threads(1)
pytestmark = pytest.mark.filterwarnings("ignore")
AUTO = {"AutoConfig": "configuration_evil.Anything", "AutoModelForCausalLM": "modeling_evil.Anything"}


def nested(folder: Path) -> None:
    value: object = 1
    for _ in range(40):
        value = {"deeper": value}
    edit(folder, extra=value)


def pickle_only(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04cposix\nsystem\nq\x00.")


def outside_index(folder: Path) -> None:
    names = {"weight_map": {"lm_head.weight": "../../outside.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(names))


def wrong_embedding(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors["model.embed_tokens.weight"] = tensors["model.embed_tokens.weight"][:50].clone()
    write_weights(folder, tensors)


def lying_header(folder: Path) -> None:
    entry = {"dtype": "F32", "shape": [96, 64], "data_offsets": [0, 96 * 64 * 4]}
    write_raw_header(folder / "model.safetensors", {"model.embed_tokens.weight": entry}, b"\0" * 64)


def huge_header(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes((2**62).to_bytes(8, "little") + b"{}")


def shards_beside(folder: Path) -> None:
    """A sound file that the index names, and beside it the one that transformers prefers."""
    (folder / "sound.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    names = {"weight_map": {"lm_head.weight": "sound.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(names))
    lying_header(folder)


HOSTILE: dict[str, tuple[Callable[[Path], object], str]] = {
    "auto_map in the configuration": (lambda f: edit(f, auto_map=AUTO, model_type="evil"), "code of its own"),
    "auto_map over a known architecture": (lambda f: edit(f, auto_map=AUTO), "code of its own"),
    "auto_map hidden in a sub-configuration": (lambda f: edit(f, text_config={"auto_map": AUTO}), "code of its own"),
    "auto_map of the tokenizer": (
        lambda f: edit(f, "tokenizer_config.json", auto_map={"AutoTokenizer": ["tokenization_evil.Anything", None]}),
        "code of its own",
    ),
    "trust_remote_code in the configuration": (lambda f: edit(f, trust_remote_code=True), "code of its own"),
    "generation code": (lambda f: edit(f, "generation_config.json", custom_generate="evil"), "code of its own"),
    "internal attention key": (
        lambda f: edit(f, _attn_implementation_internal="evil/kernel"),
        "belongs to transformers itself",
    ),
    "attention kernel from a hub": (lambda f: edit(f, attn_implementation="evil/kernel:fn"), "kernel to download"),
    "kernel table": (lambda f: edit(f, kernel_config={"kernel_mapping": {"RMSNorm": "evil/rms@v1:x"}}), "kernel"),
    "absurd vocabulary": (lambda f: edit(f, vocab_size=2**40), "vocab_size=1099511627776 is not between"),
    "negative size": (lambda f: edit(f, hidden_size=-64), "hidden_size=-64 is not between"),
    "size as text": (lambda f: edit(f, num_hidden_layers="3"), "num_hidden_layers=3 is not between"),
    "nesting without end": (nested, "nested more than 16 deep"),
    "pickle only": (pickle_only, "only safetensors is read. Convert it"),
    "index that leaves the folder": (outside_index, "names files outside of the folder"),
    "embedding of another model": (wrong_embedding, "do not belong together"),
    "header that lies": (lying_header, "does not fit the file"),
    "header longer than the file": (huge_header, "its header is longer than the file"),
    "sound shards beside a lying file": (shards_beside, "does not fit the file"),
    "adapter": (lambda f: (f / "adapter_config.json").write_text("{}"), "is an adapter, not a model"),
    "configuration as a list": (lambda f: (f / "config.json").write_text("[]"), "holds no JSON object"),
    "configuration cut short": (lambda f: (f / "config.json").write_text('{"model_type"'), "is damaged"),
    "configuration of 5 MiB": (lambda f: (f / "config.json").write_text(" " * 5 * 2**20), "bytes long, allowed are"),
    "no configuration": (lambda f: (f / "config.json").unlink(), "config.json is missing"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), "has no weights"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_folder_is_refused_and_runs_nothing(name: str, folder: Path, tmp_path: Path) -> None:
    spoil, expected = HOSTILE[name]
    flag = tmp_path / "executed"
    plant_canaries(folder, flag)
    spoil(folder)
    with pytest.raises(ModelLoadError, match=expected.replace("(", r"\(")) as caught:
        load_model(EngineConfig(model=str(folder), dtype="float32"))
    assert "\n" not in str(caught.value)
    assert not flag.exists()


@pytest.mark.parametrize("key", ["num_hidden_layers", "num_layers"])
@pytest.mark.parametrize("said", [68, 500, 2048])
def test_layers_without_weights_are_refused_before_anything_is_built(
    folder: Path, key: str, said: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within the bound, but transformers would take seconds to build 2,048 layers and then miss their weights."""
    monkeypatch.delattr("yaie_engine.loader.read_model")
    edit(folder, **{key: said})
    with pytest.raises(ModelLoadError, match=f"says {key}={said}, the weight files hold 3 layers: config"):
        load_model(EngineConfig(model=str(folder), dtype="float32"))


@pytest.mark.parametrize("name", ["x.layers.2047.y", "model.layers.500.self_attn.q_proj.weight"])
def test_a_high_number_is_one_layer(folder: Path, name: str) -> None:
    tensors = load_file(folder / "model.safetensors")
    write_weights(folder, {**tensors, name: torch.zeros(1)})
    edit(folder, num_hidden_layers=2048)
    with pytest.raises(ModelLoadError, match="num_hidden_layers=2048, the weight files hold 4 layers"):
        screen(folder)


@pytest.mark.parametrize(
    ("key", "said"), [("vocab_size", 2**23), ("num_hidden_layers", 2048), ("hidden_size", 2**17), ("n_layer", 900)]
)
def test_a_part_that_the_type_does_not_know_covers_nothing_up(
    folder: Path, key: str, said: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Llama reads the outer level only."""
    monkeypatch.delattr("yaie_engine.loader.read_model")
    sizes = json.loads((folder / "config.json").read_text())
    edit(folder, text_config={name: sizes.get(name, 3) for name in ("vocab_size", "hidden_size", *LAYERS)})
    screen(folder)
    edit(folder, **{key: said})
    with pytest.raises(ModelLoadError, match=f"{key}={said}.* do not belong together"):
        load_model(EngineConfig(model=str(folder), dtype="float32"))


def test_a_part_that_stands_for_the_outer_level_may_differ_from_it(folder: Path) -> None:
    """As in models with a vision tower, whose outer sizes are left over or those of something else."""
    sizes = json.loads((folder / "config.json").read_text())
    edit(folder, text_config=sizes, vocab_size=sizes["vocab_size"] + 1, hidden_size=2 * sizes["hidden_size"])
    screen(folder)


def test_what_need_not_be_wrong_about_layers_is_left_to_transformers(folder: Path) -> None:
    """A few too many may share weights; tensors of other names do not say how many layers there are."""
    edit(folder, num_hidden_layers=12)
    assert screen(folder).config["num_hidden_layers"] == 12
    edit(folder, num_hidden_layers=2000)
    tensors = load_file(folder / "model.safetensors")
    write_weights(folder, {name.replace(".layers.", ".stages."): tensor for name, tensor in tensors.items()})
    assert screen(folder).config["num_hidden_layers"] == 2000


@pytest.mark.parametrize(
    "name",
    [
        "gpt2", "gpt-neo", "mpt", "bloom", "codegen", "opt", "gemma4-shared-kv", "mixtral-window", "deepseek-v3",
        "falcon-h1", "jamba", "mamba", "olmo-hybrid", "llama4-chunked",
    ],
)  # fmt: skip
def test_layers_are_counted_right_in_every_way_of_naming_them(name: str, tmp_path: Path) -> None:
    BY_NAME[name].build().save_pretrained(tmp_path)
    found = screen(tmp_path)
    numbers = {int(match[1]) for tensor in found.tensors for match in LAYER.finditer(tensor)}
    said = [found.config[key] for key in LAYERS if key in found.config]
    assert said and [numbers] * len(said) == [set(range(count)) for count in said]


def test_python_files_in_a_sound_folder_are_ignored(folder: Path, tmp_path: Path) -> None:
    plant_canaries(folder, tmp_path / "executed")
    load_model(EngineConfig(model=str(folder), dtype="float32"))
    assert not (tmp_path / "executed").exists()


def test_a_sound_folder_passes(folder: Path) -> None:
    found = screen(folder)
    assert found.config["model_type"] == "llama"
    assert found.num_weights == sum(tensor.numel() for tensor in load_file(folder / "model.safetensors").values())


def test_ordinary_keys_with_alarming_names_pass(folder: Path) -> None:
    edit(folder, conv_kernel=4, attn_implementation="sdpa", auto_map=None, use_mamba_kernels=True)
    assert screen(folder).config["conv_kernel"] == 4


def test_every_truncation_of_a_header_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    write_weights(tmp_path, {"a": torch.zeros(2, 3), "b": torch.ones(4, dtype=torch.bfloat16)})
    whole = path.read_bytes()
    assert {name: info.shape for name, info in read_header(path).items()} == {"a": (2, 3), "b": (4,)}
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(ModelLoadError, match="is damaged"):
            read_header(path)


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]},
        {"dtype": "F99", "shape": [2], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": [2], "data_offsets": [8, 0]},
        {"dtype": "F32", "shape": [True, 2], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": [2]},
        {"dtype": ["F32"], "shape": [2], "data_offsets": [0, 8]},
        [],
    ],
)
def test_lying_tensor_entries_are_refused(entry: object, tmp_path: Path) -> None:
    write_raw_header(tmp_path / "x.safetensors", {"a": entry}, b"\0" * 8)
    with pytest.raises(ModelLoadError, match="does not fit the file"):
        read_header(tmp_path / "x.safetensors")
