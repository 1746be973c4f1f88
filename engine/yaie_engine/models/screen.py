"""What a model folder may contain, checked before transformers sees it: a folder is data, never code."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from yaie_engine.errors import ModelLoadError

from .json_file import MOST_BYTES, read_json
from .tensor_header import TensorInfo, read_header

INDEX = "model.safetensors.index.json"
PICKLES = {".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".h5", ".msgpack"}
MOST_DEPTH = 16
MOST_TOKENIZER_BYTES = 256 * 2**20
READ_WHOLE = {
    ".json": MOST_TOKENIZER_BYTES,
    ".txt": MOST_TOKENIZER_BYTES,
    ".model": MOST_TOKENIZER_BYTES,
    ".jinja": MOST_BYTES,
}
"""How long files may be that transformers reads into memory whatever their size."""

# Keys that make transformers run code from the folder or from a hub, or that belong to its own bookkeeping.
FORBIDDEN = {"auto_map", "trust_remote_code", "custom_generate", "custom_pipelines", "code_revision"}
# Keys that name the files to read, in place of those that are screened, or that give such a key another name.
REDIRECTIONS = {"transformers_weights", "configuration_files", "fast_tokenizer_files", "gguf_file", "init_inputs"}
REDIRECTIONS |= {"attribute_map", "sub_configs", "sub_configs_defaults", "extra_files", "extra_config_files"}
REDIRECTIONS |= {"_auto_class"}
TOKENIZER_FILES = ("tokenizer_config.json", "special_tokens_map.json")
BESIDE = (
    *TOKENIZER_FILES, "tokenizer.json", "added_tokens.json", "vocab.json", "vocab.txt", "merges.txt", "tokenizer.model",
    "spiece.model", "tekken.json", "tiktoken.model", "generation_config.json", "chat_template.jinja",
)  # fmt: skip
"""What transformers may read beside a GGUF file, which may lie among anything."""
RESOLVED = {"tokenizer_file", "tokenizer_config_file", "special_tokens_map_file", "added_tokens_file"}
"""Old paths that `save_pretrained` left in many a tokenizer: transformers puts the folder's own in their place."""
IMPLEMENTATIONS = ("attn_implementation", "_attn_implementation", "experts_implementation", "_experts_implementation")
MOST = {
    "vocab_size": 2**23,
    "hidden_size": 2**17,
    "n_embd": 2**17,
    "d_model": 2**17,
    "intermediate_size": 2**20,
    "num_hidden_layers": 2048,
    "n_layer": 2048,
    "n_layers": 2048,
    "num_layers": 2048,
    "num_attention_heads": 4096,
    "num_key_value_heads": 4096,
    "n_head": 4096,
    "head_dim": 2**14,
    "max_position_embeddings": 2**28,
    "n_positions": 2**28,
    "num_experts": 2**14,
    "num_local_experts": 2**14,
    "n_routed_experts": 2**14,
    "state_size": 2**16,
}
COUNTS = (
    (re.compile(r"(^|_)(layers|blocks|modules|stages)$"), 2048),
    (re.compile(r"^(num|n)_(?!positions|ctx|embd|inner|params|parameters|tokens)|_heads$|_experts$"), 2**16),
)
"""How large whole numbers may be that say how many there are of something, by the name of their key."""
WIDTHS = ("hidden_size", "n_embd", "d_model", "word_embed_proj_dim", "embedding_size")
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
LAYER = re.compile(r"(?:^|\.)(?:layers|layer|blocks|block|h)\.(\d{1,5})\.")
"""The number of a layer in the name of a tensor, in most architectures; `_layers` asks nothing of the others."""
FAR = 64
"""Layers more than there are from which on it is no oversight, and transformers would take seconds to build them."""
EMBEDDINGS = ("embed_tokens.weight", "wte.weight", "word_embeddings.weight", "embed_in.weight")


@dataclass(frozen=True, slots=True)
class Screened:
    """A folder that may be read: its configuration and the tensors its files announce."""

    config: dict[str, Any]
    tensors: dict[str, TensorInfo]

    @property
    def num_weights(self) -> int:
        """Elements over all tensors."""
        return sum(info.numel for info in self.tensors.values())


def screen(folder: Path) -> Screened:
    """Check the JSON files, then the headers of the weights.

    Raises:
        ModelLoadError: one line saying what was found and what to do.
    """
    config = screen_json(folder)
    tensors: dict[str, TensorInfo] = {}
    for path in weight_files(folder):
        tensors.update(read_header(path))
    text = config.get("text_config")
    plain = {**config, **text} if isinstance(text, dict) else config
    _agree(folder, plain, tensors)
    _layers(folder, plain, tensors)
    if plain is not config:
        _outside(folder, config, tensors)
    return Screened(config, tensors)


def screen_json(folder: Path) -> dict[str, Any]:
    """Check every JSON file that steers transformers; returns config.json."""
    _no_adapter(folder)
    config = read_json(folder / "config.json")
    _keys(folder, ("generation_config.json",))
    screen_tokenizer(folder)
    return config


def screen_tokenizer(folder: Path) -> None:
    """Check the files of a tokenizer, and the configuration that may choose its class; none has to be there."""
    screen_files(folder)
    _keys(folder, ("config.json", *TOKENIZER_FILES))


def screen_beside(folder: Path) -> None:
    """Check what transformers may read beside a GGUF file; none has to be there."""
    _no_adapter(folder)
    screen_files(folder, BESIDE)
    _keys(folder, ("generation_config.json", *TOKENIZER_FILES))


def _no_adapter(folder: Path) -> None:
    if (folder / "adapter_config.json").exists():
        raise ModelLoadError(f"{folder.name} is an adapter, not a model: merge it into its base model and save that")


def _keys(folder: Path, names: Sequence[str]) -> None:
    """Every key of these files, where they are there."""
    for name in names:
        where = f"{folder.name}/{name}"
        for key, value in _walk(read_json(folder / name), where) if (folder / name).exists() else ():
            _allowed(where, key, value)
            if name in TOKENIZER_FILES:
                _own_vocabulary(where, key, value)


def screen_files(folder: Path, names: Sequence[str] = ()) -> None:
    """Whatever transformers may open is a plain file, or a link to one, of a size that fits into memory.

    With `names`, only the files of these names are looked at.

    Reading a pipe would never end, and a device has no end.

    Raises:
        ModelLoadError: one is not.
    """
    more = folder / "additional_chat_templates"
    for path in (*folder.iterdir(), *(more.iterdir() if more.is_dir() else ())):
        where = f"{folder.name}/{path.name[:80]}"
        most = READ_WHOLE.get(path.suffix)
        if names and path.parent == folder and path.name not in names:
            continue
        if path.is_dir() and most is None:
            continue
        if not path.is_file():
            raise ModelLoadError(f"{where} is no plain file, or a link to nothing; remove it or download it again")
        if most is not None and path.stat().st_size > most and path.name != INDEX:
            raise ModelLoadError(f"{where} is {path.stat().st_size} bytes long, allowed are {most}")


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a folder that transformers would read, in its order of preference.

    Raises:
        ModelLoadError: none, some missing, or only pickles.
    """
    whole = folder / "model.safetensors"
    if (folder / INDEX).exists():
        named = read_json(folder / INDEX, 16 * MOST_BYTES).get("weight_map")
        names = sorted(set(named.values())) if isinstance(named, dict) and named else []
        if not names or any(not isinstance(name, str) or Path(name).name != name for name in names):
            raise ModelLoadError(f"{folder.name}/{INDEX} names files outside of the folder, or none")
        missing = [name for name in names if not (folder / name).is_file()]
        if missing:
            raise ModelLoadError(
                f"{folder.name} is incomplete: {len(missing)} of {len(names)} weight files are missing"
            )
        if not whole.is_file():
            return [folder / name for name in names]
    if whole.is_file():
        return [whole]
    pickles = sorted(path.name for path in folder.iterdir() if path.suffix in PICKLES)
    if pickles:
        raise ModelLoadError(pickled(folder.name, str(folder), pickles[0]))
    raise ModelLoadError(f"{folder.name} has no weights: a model.safetensors file is needed")


def pickled(name: str, source: str, file_name: str) -> str:
    """What to do about a model that exists as a pickle only."""
    convert = (
        f"from transformers import AutoModelForCausalLM as M, AutoTokenizer as T; s = {source!r}; "
        "M.from_pretrained(s).save_pretrained('converted'); T.from_pretrained(s).save_pretrained('converted')"
    )
    return (
        f"{name} has its weights in {file_name}, a format that can run code; only safetensors is read. "
        f'Convert it where you trust it: python -c "{convert}"'
    )


def _walk(value: Any, where: str, key: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Every key with its value, at any depth."""
    if depth > MOST_DEPTH:
        raise ModelLoadError(f"{where} is nested more than {MOST_DEPTH} deep")
    if key:
        yield key, value
    if isinstance(value, dict):
        for name, item in value.items():
            # Below a table of kernels every entry names one.
            yield from _walk(item, where, f"{key}.{name}" if "kernel" in key else name, depth + 1)
    elif isinstance(value, list):
        for item in value:
            yield from _walk(item, where, key, depth + 1)


def _allowed(where: str, key: str, value: Any) -> None:
    if key in FORBIDDEN and value not in (None, False, {}, []):
        raise ModelLoadError(
            f"{where} asks for code of its own ({key}); such models are not loaded. "
            "Use a version of the model that transformers knows itself"
        )
    if key in REDIRECTIONS and value not in (None, False, {}, [], ""):
        raise ModelLoadError(f"{where} names the files to read ({key}={str(value)[:60]!r}); remove {key}")
    if key.endswith("_internal"):
        raise ModelLoadError(f"{where} sets {key}, which belongs to transformers itself; remove it")
    names_kernel = key in IMPLEMENTATIONS or "kernel" in key
    if names_kernel and isinstance(value, str) and any(sign in value for sign in "/:|@"):
        raise ModelLoadError(f"{where} names a kernel to download ({key}={value[:60]!r}); remove it")
    if key in MOST and value is not None and not isinstance(value, list | dict):
        sound = type(value) is int and 0 <= value <= MOST[key]
        if not sound:
            raise ModelLoadError(f"{where}: {key}={str(value)[:40]} is not between 0 and {MOST[key]}")
    elif type(value) is int:
        for pattern, most in COUNTS:
            if pattern.search(key) and value > most:
                raise ModelLoadError(f"{where}: {key}={str(value)[:40]} is more than {most}")
    if isinstance(value, float) and value != value:
        raise ModelLoadError(f"{where}: {key} is not a number")


def _own_vocabulary(where: str, key: str, value: Any) -> None:
    """A tokenizer takes its vocabulary from its own folder: what looks like a path is opened as it stands."""
    names_file = (key.endswith(("_file", "_files")) and key not in RESOLVED) or key in ("vocab", "merges")
    if names_file and isinstance(value, str) and value:
        raise ModelLoadError(f"{where} names a file to read ({key}={value[:60]!r}); remove {key}")


def _layers(folder: Path, plain: dict[str, Any], tensors: dict[str, TensorInfo]) -> None:
    """The configuration does not say far more layers than any tensor is of.

    Layers may share weights, or carry other names: only several times as many, and where there are such names, is sure.
    """
    there = len({int(found[1]) for name in tensors for found in LAYER.finditer(name)})
    for key in LAYERS:
        said = plain.get(key)
        if there and type(said) is int and said > max(4 * there, there + FAR):
            raise ModelLoadError(
                f"{folder.name}: config.json says {key}={said}, the weight files hold {there} layers: "
                "configuration and weights do not belong together"
            )


def _outside(folder: Path, config: dict[str, Any], tensors: dict[str, TensorInfo]) -> None:
    """What `text_config` covers up is not far more than there is: many classes of models know no such part.

    Where they know it, what stands outside of it may be another part's, or left over.
    """
    _layers(folder, config, tensors)
    for name, info in _embeddings(tensors):
        for key, there in (("vocab_size", info.shape[0]), *((key, info.shape[1]) for key in WIDTHS)):
            said = config.get(key)
            if type(said) is int and said > 4 * there:
                raise ModelLoadError(
                    f"{folder.name}: {name} is {info.shape[0]} x {info.shape[1]}, config.json says {key}={said} "
                    "outside of text_config: configuration and weights do not belong together"
                )


def _embeddings(tensors: dict[str, TensorInfo]) -> Iterator[tuple[str, TensorInfo]]:
    """The embedding matrices of text."""
    for name, info in tensors.items():
        plain = len(info.shape) == 2 and info.dtype not in ("U8", "I8", "I32")
        if plain and name.endswith(EMBEDDINGS) and "vision" not in name and "audio" not in name:
            yield name, info


def _agree(folder: Path, plain: dict[str, Any], tensors: dict[str, TensorInfo]) -> None:
    """The embedding matrix has the rows and columns that the configuration says."""
    rows = plain.get("vocab_size")
    columns = {plain[name] for name in WIDTHS if isinstance(plain.get(name), int)}
    if not isinstance(rows, int) or not columns:
        return
    for name, info in _embeddings(tensors):
        if info.shape[0] != rows or info.shape[1] not in columns:
            raise ModelLoadError(
                f"{folder.name}: {name} is {info.shape[0]} x {info.shape[1]}, config.json says {rows} x "
                f"{' or '.join(map(str, sorted(columns)))}: configuration and weights do not belong together"
            )
