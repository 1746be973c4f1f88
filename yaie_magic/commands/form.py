"""What a command of `yaie` says of itself: its words, its options in groups, examples, variables, exit codes."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from yaie_magic.logs import LOGGING
from yaie_magic.options import Group, Option, engine_options, option, sampling_options
from yaie_magic.parser import WIDTH, OptionParser

Place = tuple[str, str, str]
Example = tuple[str, str]
"""What it does, and the line to type."""

MODEL = "bundled model, local folder, Hub id or .gguf file [default: tiny]"
CONFIG = option(
    "config", "YAML file with settings and sampling parameters, below the environment and options", metavar="FILE"
)
JSON = option("json", "as JSON instead of text", kind="flag")
SETTINGS = "YAIE_<FIELD>", "any setting of the engine or sampling parameter, for instance YAIE_NUM_BLOCKS=512"
KEY = "YAIE_API_KEY", "the key that a server asks for"
CACHES = "HF_HOME, HF_HUB_OFFLINE", "where downloaded models are kept; 1: never download"
STORE = "YAIE_CACHE_DIR", "where compiled CUDA kernels are kept"
EXIT_CODES = "0 done; 1 failed; 2 usage or a bad value; 130 interrupted by Ctrl-C"

_ENGINE_TITLES = {
    "engine (model and device)": (
        *("tokenizer", "revision", "chat_template", "dtype", "device", "attention_backend", "enforce_eager"),
        "enable_torch_compile",
        *("speculative", "sampling_defaults"),
    ),
    "engine (memory and cache)": (
        *("block_size", "num_blocks", "gpu_memory_utilization", "cpu_memory_utilization", "num_cpu_blocks"),
        *("max_model_len", "enable_prefix_caching", "prefix_store", "prefix_store_gib", "state_cache_gib"),
        "recorder_steps",
    ),
}
_THE_REST = "engine (scheduling)"


def engine_groups(without: Sequence[Option] = ()) -> tuple[Group, ...]:
    """Every option of the engine under three titles, but for the names that other options have taken."""
    taken = {entry.name for entry in without}
    entries = [entry for entry in engine_options() if entry.name not in taken]
    title_of = {name: title for title, names in _ENGINE_TITLES.items() for name in names}
    return tuple(
        Group(title, tuple(entry for entry in entries if title_of.get(entry.name, _THE_REST) == title))
        for title in (*_ENGINE_TITLES, _THE_REST)
    )


def sampling_group(without: Sequence[str] = ()) -> Group:
    """The options of a request."""
    return Group("sampling", tuple(entry for entry in sampling_options() if entry.name not in without))


def form(
    name: str,
    about: str,
    options: Sequence[Option] = (),
    places: Sequence[Place] = (),
    groups: Sequence[Group] = (),
    examples: Sequence[Example] = (),
    variables: Sequence[tuple[str, str]] = (),
    exit_codes: str = EXIT_CODES,
) -> OptionParser:
    """The parser of `yaie NAME`, whose help teaches by example."""
    parts = [_examples(examples), _variables(variables), _exit_codes(exit_codes)]
    return OptionParser(f"yaie {name}", options, about, places, groups, "\n\n".join(part for part in parts if part))


def with_logging(*groups: Group) -> tuple[Group, ...]:
    """The groups of a command that loads a model."""
    return (*groups, LOGGING)


def _examples(examples: Sequence[Example]) -> str:
    return "\n".join(["examples:", *(f"  # {text}\n  {line}" for text, line in examples)]) if examples else ""


def _variables(variables: Sequence[tuple[str, str]]) -> str:
    lines = [_entry(name, text) for name, text in variables]
    return "\n".join(["environment:", *lines]) if lines else ""


def _entry(name: str, text: str) -> str:
    return textwrap.fill(text, WIDTH, initial_indent=f"  {name:<26}", subsequent_indent=" " * 28)


def _exit_codes(text: str) -> str:
    return textwrap.fill(text, WIDTH, initial_indent="exit codes: ", subsequent_indent=" " * 12)
