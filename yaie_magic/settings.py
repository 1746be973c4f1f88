"""Settings from a YAML file and from the environment, below what the command line says."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from yaie_engine.config import EngineConfig
from yaie_engine.errors import ConfigError
from yaie_engine.old_names import RENAMED, SAMPLING_DEFAULTS, WITHOUT_EFFECT
from yaie_engine.validation import did_you_mean, nearest

logger = logging.getLogger("yaie")

PREFIX = "YAIE_"
SECTIONS = ("model", "scheduler", "memory", "server")
SERVER_NAMES = ("host", "port", "api_key")
OTHER_VARIABLES = ("notebook", "dot", "trace")
SECRETS = ("api_key",)
_OLD_NAMES = (*RENAMED, *SAMPLING_DEFAULTS, *WITHOUT_EFFECT, "swap_space", "tensor_parallel_size")


def engine_settings(file: str | None, options: Mapping[str, Any]) -> EngineConfig:
    """The engine's configuration: file, then environment, then options; the later one wins.

    Raises:
        ConfigError: the file is missing or no mapping, or a name or value in any of the three is wrong.
    """
    values = {**(read_file(file) if file else {}), **read_environment(), **options}
    config = EngineConfig(**{name: value for name, value in values.items() if name not in SERVER_NAMES})
    logger.info("configuration: %s", json.dumps(without_secrets(config.model_dump()), default=str))
    return config


def read_file(path: str) -> dict[str, Any]:
    """The names and values of a YAML file, flat or grouped under model:, scheduler:, memory: and server:."""
    import yaml

    try:
        content = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"configuration file {path}: {error.strerror or error}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"configuration file {path} is not YAML: {reason}") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError(f"configuration file {path} holds a {type(content).__name__}; names with values are needed")
    return flatten(content, path)


def flatten(content: Mapping[Any, Any], path: str) -> dict[str, Any]:
    """Sections become flat names; a name that appears twice is an error. `model:` may also be the model's name."""
    flat: dict[str, Any] = {}
    for key, value in content.items():
        section = str(key) in SECTIONS and isinstance(value, dict)
        for name, item in value.items() if section else [(key, value)]:
            target = "model" if section and str(key) == "model" and name == "name" else str(name)
            if target in flat:
                raise ConfigError(f"configuration file {path}: {target} is given twice")
            flat[target] = item
    for name in flat:
        if name not in known_names():
            raise ConfigError(f"configuration file {path}: unknown name {name!r}{did_you_mean(name, known_names())}")
    return flat


def read_environment(environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """`YAIE_<FIELD>` variables as values; unknown ones are warned about, empty ones count as unset."""
    found: dict[str, Any] = {}
    for variable, text in sorted((os.environ if environment is None else environment).items()):
        if not variable.startswith(PREFIX) or not text:
            continue
        name = variable.removeprefix(PREFIX).lower()
        if name in OTHER_VARIABLES:
            continue
        if name not in known_names():
            near = nearest(name, [*known_names(), *OTHER_VARIABLES])
            hint = f"; did you mean {PREFIX}{near.upper()}?" if near else ""
            logger.warning("the environment variable %s is unknown and has no effect%s", variable, hint)
            continue
        found[name] = parse_text(name, text)
    return found


def parse_text(name: str, text: str) -> Any:
    """A variable's text as pydantic takes it; fields that hold mappings are written as JSON."""
    if name != "sampling_defaults":
        return text
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{PREFIX}{name.upper()}: not JSON: {error.msg}") from None


def known_names() -> tuple[str, ...]:
    """Every name a file or variable may set: fields, old names of Mini-YAIE, and those of the server."""
    return (*EngineConfig.model_fields, *_OLD_NAMES, *SERVER_NAMES)


def without_secrets(values: Mapping[str, Any]) -> dict[str, Any]:
    """A copy for a log: secrets are replaced by stars."""
    return {name: "***" if name in SECRETS and value else value for name, value in values.items()}
