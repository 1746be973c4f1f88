"""Settings from a YAML file and from the environment, below what the command line says."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from yaie_engine.config import EngineConfig
from yaie_engine.errors import ConfigError
from yaie_engine.old_names import RENAMED, SAMPLING_DEFAULTS, WITHOUT_EFFECT, translate
from yaie_engine.params import SamplingParams
from yaie_engine.validation import did_you_mean, nearest

from .options import Option
from .server.config import ServerConfig

logger = logging.getLogger("yaie")

PREFIX = "YAIE_"
SECTIONS = ("model", "scheduler", "memory", "server", "sampling")
SERVER_VARIABLES = ("host", "port", "api_key")
"""What of the server the environment may set; a file may set all of it."""
OTHER_VARIABLES = ("notebook", "dot", "trace", "cache_dir")
AS_JSON = ("sampling_defaults", "logit_bias", "stop_token_ids")
SECRETS = ("api_key",)
SAMPLING_NAMES = tuple(name for name in SamplingParams.model_fields if name not in EngineConfig.model_fields)
_OLD_NAMES = (*RENAMED, *SAMPLING_DEFAULTS, *WITHOUT_EFFECT, "swap_space", "tensor_parallel_size")


def engine_settings(file: str | None, options: Mapping[str, Any]) -> EngineConfig:
    """The engine's configuration: file, then environment, then options; the later one wins, also over old names.

    Raises:
        ConfigError: the file is missing or no mapping, or a name or value in any of the three is wrong.
    """
    values: dict[str, Any] = {}
    for source in (read_file(file) if file else {}, read_environment(), options):
        values = over(values, translate(in_sampling_defaults(source)))
    config = EngineConfig(**{name: value for name, value in values.items() if name not in ServerConfig.model_fields})
    logger.info("configuration: %s", json.dumps(without_secrets(config.model_dump()), default=str))
    return config


def server_settings(
    file: str | None, options: Mapping[str, Any], usual: Mapping[str, Any] | None = None
) -> ServerConfig:
    """The server's configuration, from the same three sources over what is `usual`.

    Raises:
        ConfigError: a value in one of them is wrong.
    """
    values: dict[str, Any] = dict(usual or {})
    for source in (read_file(file) if file else {}, read_environment(warn=False), options):
        values |= {name: value for name, value in source.items() if name in ServerConfig.model_fields}
    config = ServerConfig(**values)
    logger.info("server: %s", json.dumps(without_secrets(config.model_dump())))
    return config


def chosen(
    given: Mapping[str, Any], options: Sequence[Option], without: Sequence[str] = (), also: Sequence[str] = ()
) -> dict[str, Any]:
    """Those of the values given on a line that belong to a table of options."""
    names = {entry.name for entry in options} - set(without) | set(also)
    return {name: value for name, value in given.items() if name in names}


def over(values: Mapping[str, Any], source: Mapping[str, Any]) -> dict[str, Any]:
    """`values` with what `source` sets on top; sampling defaults are laid over each other one by one."""
    name = "sampling_defaults"
    if isinstance(values.get(name), dict) and isinstance(source.get(name), dict):
        source = {**source, name: {**values[name], **source[name]}}
    return {**values, **source}


def in_sampling_defaults(source: Mapping[str, Any]) -> dict[str, Any]:
    """Sampling parameters among the names of a source become sampling defaults (a seed alone is the engine's)."""
    plain = {name: value for name, value in source.items() if name not in SAMPLING_NAMES}
    sampling = {name: value for name, value in source.items() if name in SAMPLING_NAMES}
    return over({"sampling_defaults": sampling}, plain) if sampling else plain


def read_file(path: str) -> dict[str, Any]:
    """The names and values of a YAML file, flat or grouped under model:, scheduler:, memory:, server: and sampling:."""
    import yaml

    try:
        content = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"configuration file {path}: {error.strerror or error}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"configuration file {path} is not YAML: {_why_not_yaml(error)}") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError(f"configuration file {path} holds a {type(content).__name__}; names with values are needed")
    return flatten(content, path)


def _why_not_yaml(error: Exception) -> str:
    """Place and kind of the mistake. Words of the file are left out: the line may hold a key."""
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    return place + re.sub(r"'(?!<)[^']{2,}'", "...", " ".join((problem or str(error)).split()))


def flatten(content: Mapping[Any, Any], path: str) -> dict[str, Any]:
    """Sections become flat names; a name that appears twice is an error. `model:` may also be the model's name. What is
    under `sampling:` is checked with the sampling defaults."""
    flat: dict[str, Any] = {}
    for key, value in content.items():
        if key in SECTIONS and value is None:  # all that stood below it is commented out
            continue
        section = str(key) if key in SECTIONS and isinstance(value, dict) else ""
        if key in SECTIONS and not section and key != "model":
            raise ConfigError(f"configuration file {path}: names with values are needed below {key}:")
        if section == "sampling":
            key, value, section = "sampling_defaults", value, ""
        for name, item in value.items() if section else [(key, value)]:
            target = "model" if (section, name) == ("model", "name") else str(name)
            if target in flat:
                raise ConfigError(f"configuration file {path}: {target} is given twice")
            flat[target] = item
    known = (*known_names(), *ServerConfig.model_fields)
    for name in flat:
        if name not in known:
            raise ConfigError(f"configuration file {path}: unknown name {name!r}{did_you_mean(name, known)}")
    return flat


def read_environment(environment: Mapping[str, str] | None = None, warn: bool = True) -> dict[str, Any]:
    """`YAIE_<FIELD>` variables as values; unknown ones are warned about, empty ones count as unset."""
    known = (*known_names(), *SERVER_VARIABLES)
    found: dict[str, Any] = {}
    for variable, text in sorted((os.environ if environment is None else environment).items()):
        if not variable.startswith(PREFIX) or not text:
            continue
        name = variable.removeprefix(PREFIX).lower()
        if name in OTHER_VARIABLES:
            continue
        if name not in known:
            near = nearest(name, [*known, *OTHER_VARIABLES])
            hint = f"; did you mean {PREFIX}{near.upper()}?" if near else ""
            if warn:
                logger.warning("the environment variable %s is unknown and has no effect%s", variable, hint)
            continue
        found[name] = parse_text(name, text)
    return found


def parse_text(name: str, text: str) -> Any:
    """A variable's text as pydantic takes it; fields that hold mappings or lists are written as JSON."""
    if name not in AS_JSON and not (name == "stop" and text.startswith("[")):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{PREFIX}{name.upper()}: not JSON: {error}") from None


def known_names() -> tuple[str, ...]:
    """Every name of the engine that a file or variable may set: fields, sampling parameters, old names of Mini-YAIE."""
    return (*EngineConfig.model_fields, *SAMPLING_NAMES, *_OLD_NAMES)


def without_secrets(values: Mapping[str, Any]) -> dict[str, Any]:
    """A copy for a log: secrets are replaced by stars."""
    return {name: "***" if name in SECRETS and value else value for name, value in values.items()}
