"""Loading: sources, errors that say what to do, identity, and that everything is let go of."""

from __future__ import annotations

import gc
import hashlib
import shutil
import socket
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import yaie_engine.memory as memory
from tests.architectures.zoo import BY_NAME
from tests.loading.folders import edit, write_weights
from yaie_engine.config import EngineConfig
from yaie_engine.errors import ConfigError, ModelLoadError
from yaie_engine.loader import load_model
from yaie_engine.models import bundled, weights
from yaie_engine.models.devices import choose_dtype, cpu_has_bfloat16
from yaie_engine.runner import ModelRunner

torch.set_num_threads(1)
pytestmark = pytest.mark.filterwarnings("ignore")


def load(folder: Path, **settings: Any) -> Any:
    return load_model(EngineConfig(model=str(folder), **{"dtype": "float32", **settings}))


# ---- what is known about a loaded model


def test_a_folder_loads_with_everything_the_engine_asks_for(folder: Path) -> None:
    heard: list[str] = []
    config = EngineConfig(model=str(folder), dtype="float32")
    loaded = load_model(config, progress=lambda what, share: heard.append(what))
    assert (loaded.name, loaded.tier, loaded.dtype, loaded.device.type) == ("model", "flat", torch.float32, "cpu")
    assert (loaded.max_model_len, loaded.vocab_size, loaded.eos_token_ids, loaded.num_layers) == (128, 96, (2,), 3)
    assert loaded.kv_layout.bytes_per_token(torch.float32) == 3 * 2 * 2 * 16 * 4
    assert heard == ["reading tokenizer", "reading weights", "probing"]


def test_equal_models_have_equal_fingerprints_and_others_do_not(folder: Path, tmp_path: Path) -> None:
    first, again = load(folder), load(folder)
    assert first.fingerprint == again.fingerprint
    tensors = load_file(folder / "model.safetensors")
    tensors["model.norm.weight"] = tensors["model.norm.weight"] + 1e-3
    write_weights(folder, tensors)
    assert load(folder).fingerprint != first.fingerprint
    assert load(folder, dtype="bfloat16").fingerprint != load(folder).fingerprint


def test_a_local_folder_needs_no_socket(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a socket was opened for a local folder")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    assert load(folder).tier == "flat"


def test_another_tokenizer_can_be_named(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "tokenizer"
    other.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.move(folder / name, other / name)
    with pytest.raises(ModelLoadError, match="no tokenizer could be read"):
        load(folder)
    assert len(load(folder, tokenizer=str(other)).hf_tokenizer) == 96


# ---- errors, one line each


def one_line(error: pytest.ExceptionInfo[Exception]) -> str:
    assert "\n" not in str(error.value)
    return str(error.value)


def test_unknown_architecture(folder: Path) -> None:
    edit(folder, model_type="nonesuch")
    with pytest.raises(ModelLoadError, match="unsupported architecture") as error:
        load(folder)
    one_line(error)


def test_an_architecture_that_is_no_causal_language_model(folder: Path) -> None:
    edit(folder, model_type="vit", architectures=["ViTModel"])
    with pytest.raises(ModelLoadError, match="unsupported architecture") as error:
        load(folder)
    one_line(error)


def test_missing_tensors_are_never_filled_in_at_random(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    write_weights(folder, tensors)
    with pytest.raises(ModelLoadError, match=r"lacks 1 tensors .*up_proj") as error:
        load(folder)
    one_line(error)


def test_tensors_of_another_shape(folder: Path) -> None:
    edit(folder, intermediate_size=64)
    with pytest.raises(ModelLoadError, match="model:") as error:
        load(folder)
    one_line(error)


def test_an_incomplete_set_of_weight_files(folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_text(
        '{"weight_map": {"a": "model-1.safetensors", "b": "model.safetensors"}}'
    )
    with pytest.raises(ModelLoadError, match="1 of 2 weight files are missing"):
        load(folder)


def test_too_little_memory_for_the_weights(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free_memory", lambda device: 1000)
    with pytest.raises(ModelLoadError, match=r"needs .* for its weights in float32, 1000 bytes of RAM are free"):
        load(folder)


def test_too_little_memory_for_the_blocks_names_the_most_that_fit(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = load(folder)
    per_block = loaded.kv_layout.bytes_per_token(torch.float32) * 16
    monkeypatch.setattr(memory, "free_memory", lambda device: 10 * per_block + 5)
    with pytest.raises(ModelLoadError, match=r"num_blocks=11 needs .* the largest num_blocks that fits is 10"):
        ModelRunner(loaded, EngineConfig(model=str(folder), num_blocks=11))
    assert ModelRunner(loaded, EngineConfig(model=str(folder), num_blocks=10)).num_blocks == 10
    assert ModelRunner(loaded, EngineConfig(model=str(folder), cpu_memory_utilization=0.5)).num_blocks == 5
    monkeypatch.setattr(memory, "free_memory", lambda device: per_block)
    with pytest.raises(ModelLoadError, match="raise cpu_memory_utilization"):
        ModelRunner(loaded, EngineConfig(model=str(folder)))


def test_at_most_sixteen_contexts_of_blocks(folder: Path) -> None:
    assert ModelRunner(load(folder), EngineConfig(model=str(folder))).num_blocks == 16 * 128 // 16


def test_a_length_over_the_models(folder: Path) -> None:
    assert load(folder, max_model_len=64).max_model_len == 64
    with pytest.raises(ConfigError, match="max_model_len=129 is over the 128 positions"):
        load(folder, max_model_len=129)


def test_a_device_that_is_not_there(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"this machine has .* CUDA devices"):
        load(folder, device="cuda:97")


def test_settings_that_cannot_be_honoured(folder: Path) -> None:
    with pytest.raises(ConfigError, match="revision='main' is for models of the Hub"):
        load(folder, revision="main")


@pytest.mark.parametrize("name", ["tinny", "./no/such/folder", "not a name", "a/b/c", ""])
def test_names_that_lead_nowhere(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises((ModelLoadError, ConfigError)) as error:
        load_model(EngineConfig(model=name))
    one_line(error)


def test_a_gguf_file_that_is_not_there() -> None:
    with pytest.raises(ModelLoadError, match=r"no such file: nowhere\.gguf"):
        load_model(EngineConfig(model="nowhere.gguf"))


# ---- the bundled models


def test_a_bundled_model_is_verified(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "bundled"
    shutil.copytree(folder, root / "small")
    lines = [f"{hashlib.sha256(p.read_bytes()).hexdigest()}  {p.name}\n" for p in sorted((root / "small").iterdir())]
    (root / "small" / bundled.CHECKSUMS).write_text("".join(lines))
    monkeypatch.setattr(bundled, "bundled_root", lambda: root)
    assert load_model(EngineConfig(model="small")).dtype == torch.float32
    data = bytearray((root / "small" / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (root / "small" / "model.safetensors").write_bytes(data)
    with pytest.raises(ModelLoadError, match=r"'small' is damaged \(model.safetensors\): install yaie-magic again"):
        load_model(EngineConfig(model="small"))


# ---- dtype


def test_dtype_auto_is_what_the_device_computes_fastest(tmp_path: Path) -> None:
    config, cpu, gpu = EngineConfig(), torch.device("cpu"), torch.device("cuda:0")
    expected = torch.bfloat16 if cpu_has_bfloat16() else torch.float32
    assert choose_dtype(config, cpu, "float16", False) == expected
    assert choose_dtype(config, cpu, "bfloat16", True) == torch.float32
    assert choose_dtype(config, gpu, "float16", False) == torch.float16
    assert choose_dtype(config, gpu, None, False) == torch.bfloat16
    assert choose_dtype(EngineConfig(dtype="float16"), cpu, "bfloat16", True) == torch.float16
    (tmp_path / "cpuinfo").write_text("processor: 0\nflags\t: sse2 avx512_bf16 fma\n")
    assert cpu_has_bfloat16(tmp_path / "cpuinfo")
    (tmp_path / "cpuinfo").write_text("processor: 0\nFeatures\t: fp asimd\n")
    assert not cpu_has_bfloat16(tmp_path / "cpuinfo")
    assert not cpu_has_bfloat16(tmp_path / "nowhere")


# ---- model objects


def test_a_model_object_stays_as_it_was() -> None:
    model = BY_NAME["gemma2"].build().train()
    ids = torch.tensor([[5, 6, 7, 8, 9, 10, 11, 12]])
    before = model.eval()(ids).logits
    model.train()
    state = {name: weight.clone() for name, weight in model.state_dict().items()}
    plain, modules = model.config.to_dict(), [dict(vars(module)) for module in model.modules()]
    loaded = load_model(EngineConfig(model="x"), model)
    assert loaded.model is not model and loaded.tier == "flat"
    assert loaded.model.lm_head.weight is model.lm_head.weight
    assert model.training and not loaded.model.training
    assert model.config.to_dict() == plain
    assert model.config._attn_implementation == "eager"
    assert [set(vars(module)) for module in model.modules()] == [set(one) for one in modules]
    assert all(torch.equal(weight, state[name]) for name, weight in model.state_dict().items())
    runner = ModelRunner(loaded, EngineConfig(model="x", num_blocks=4))
    torch.testing.assert_close(model.eval()(ids).logits, before, rtol=0, atol=0)
    runner.close()


def test_objects_that_are_no_model_are_refused() -> None:
    with pytest.raises(ModelLoadError, match="Linear is no transformers model"):
        load_model(EngineConfig(model="x"), torch.nn.Linear(2, 2))
    with pytest.raises(ModelLoadError, match=r"the model object is torch\.float32"):
        load_model(EngineConfig(model="x", dtype="bfloat16"), BY_NAME["llama"].build())


def test_an_object_that_cannot_be_copied_is_refused() -> None:
    model = BY_NAME["llama"].build()
    model.lock = threading.Lock()
    with pytest.raises(ModelLoadError, match=r"cannot be copied .*save_pretrained"):
        load_model(EngineConfig(model="x"), model)


# ---- letting go


def tracked(loaded: Any) -> list[weakref.ref[Any]]:
    parameter = next(loaded.model.parameters())
    return [weakref.ref(loaded.model), weakref.ref(parameter), weakref.ref(loaded.model.model.rotary_emb)]


def test_closing_frees_model_and_cache(folder: Path) -> None:
    loaded = load(folder)
    runner = ModelRunner(loaded, EngineConfig(model=str(folder), num_blocks=8))
    references = [*tracked(loaded), *(weakref.ref(key) for key, _ in runner.cache.layers.values())]
    runner.close()
    runner.close()
    loaded.close()
    gc.collect()
    assert [reference() for reference in references] == [None] * len(references)


def test_a_model_object_is_freed_when_its_owner_drops_it_too() -> None:
    model = BY_NAME["llama"].build()
    loaded = load_model(EngineConfig(model="x"), model)
    reference = weakref.ref(model.lm_head.weight)
    loaded.close()
    assert reference() is not None
    del model
    gc.collect()
    assert reference() is None


@pytest.mark.parametrize("where", ["probing", "reading weights", "reading tokenizer"])
def test_an_interrupt_leaves_nothing_behind(where: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[weakref.ref[Any]] = []
    read_model = weights.read_model

    def noting(*args: Any, **kwargs: Any) -> Any:
        model = read_model(*args, **kwargs)
        made.append(weakref.ref(model))
        return model

    monkeypatch.setattr("yaie_engine.loader.read_model", noting)

    def interrupt(what: str, _share: float | None) -> None:
        if what == where:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load_model(EngineConfig(model=str(folder), dtype="float32"), progress=interrupt)
    gc.collect()
    assert [reference() for reference in made] == [None] * len(made)
    from huggingface_hub import constants

    assert load(folder).tier == "flat"
    assert constants.HF_HUB_OFFLINE in (True, False)
