"""From what a caller gives to a configuration, and from a loaded model to a running engine."""

from __future__ import annotations

import os
from typing import Any

from .chat import load_template
from .config import EngineConfig
from .delivery import Delivery
from .engine import LLMEngine
from .errors import ConfigError
from .host_cache import HostCache
from .loader import LoadedModel
from .policies import make_policy
from .runner import After, ModelRunner
from .sampler import Sampler
from .scheduler import Scheduler
from .states.restore import StateRestore
from .step_limits import Limits
from .tokenizer import Tokenizer

NOT_GIVEN: Any = object()
"""Stands for a model that the caller did not name: the configuration's, by default the bundled one."""
STEP_COST, GPU_STEP_COST = 32, 512
"""What a step costs but for its tokens, roughly, in tokens."""


def merge_config(model: Any, tokenizer: Any, config: EngineConfig | None, settings: dict[str, Any]) -> EngineConfig:
    """One configuration from a config object or keywords, never from both."""
    given = {"model": model, "tokenizer": tokenizer}
    names = {"model": _model_name(model, tokenizer), "tokenizer": _tokenizer_name(tokenizer)}
    named = {key: value for key, value in names.items() if value is not None}
    if config is None:
        config, settings = EngineConfig(**named, **settings), {}
    if not isinstance(config, EngineConfig):
        raise ConfigError(
            f"LLM: config={type(config).__name__}: an EngineConfig is needed; give its fields as keywords"
        )
    if settings:
        raise ConfigError(f"LLM: give either config or keywords, not both ({', '.join(settings)})")
    for key, value in named.items():
        if isinstance(given[key], str | os.PathLike) and value != getattr(config, key):
            raise ConfigError(f"LLM: {key}={value!r} is given, and config says {getattr(config, key)!r}")
    if config.chat_template is not None:
        load_template(config.chat_template)  # said now, not in the first chat
    return config


def _model_name(model: Any, tokenizer: Any) -> str | None:
    if model is NOT_GIVEN:
        return None
    if isinstance(model, str | os.PathLike):
        return os.fspath(model)
    if not hasattr(model, "get_output_embeddings"):
        raise ConfigError(f"LLM: model={type(model).__name__}: a name, a path or a model of transformers is needed")
    if tokenizer is None or isinstance(tokenizer, str | os.PathLike):
        raise ConfigError("LLM: a model object needs its tokenizer object: LLM(model, tokenizer=tokenizer)")
    return type(model).__name__


def _tokenizer_name(tokenizer: Any) -> str | None:
    if isinstance(tokenizer, str | os.PathLike):
        return os.fspath(tokenizer)
    if tokenizer is not None and not hasattr(tokenizer, "added_tokens_decoder"):
        raise ConfigError(
            f"LLM: tokenizer={type(tokenizer).__name__}: a folder, a Hub id, or a tokenizer of transformers is needed"
        )
    return None


def start_engine(
    config: EngineConfig, loaded: LoadedModel, tokenizer: Tokenizer, after: After | None = None
) -> LLMEngine:
    """Allocate the KV cache and start the engine's thread. `after` is called when a step has run.

    Raises:
        ModelLoadError: the KV cache or the host blocks do not fit into memory.
        ConfigError: the model keeps nothing in blocks, and host blocks are asked for.
    """
    if config.num_cpu_blocks and not loaded.shares_prefixes:
        raise ConfigError(
            f'num_cpu_blocks: {loaded.name} is served by tier "{loaded.tier}", whose state is not kept in blocks; '
            "leave it out: what is preempted is computed again"
        )
    runner = ModelRunner(loaded, config, after)
    limits = Limits(
        max_num_batched_tokens=runner.max_num_batched_tokens,
        max_num_seqs=config.max_num_seqs,
        long_prefill_token_threshold=config.long_prefill_token_threshold,
        chunked_prefill=config.enable_chunked_prefill and loaded.chunks_prefill,
        shared_prefill=STEP_COST if loaded.device.type == "cpu" else GPU_STEP_COST,
    )
    swaps = config.preemption == "swap"
    if runner.kept is None:
        host = HostCache(config.num_cpu_blocks, runner.block_size, swaps, runner.host.out, runner.host.into)
    else:
        host = StateRestore(runner.kept, runner.block_size)
    return LLMEngine(
        Scheduler(runner.num_blocks, runner.block_size, limits, make_policy(config.scheduling_policy), host),
        runner,
        Sampler(loaded.vocab_size, tokenizer.num_tokens, loaded.eos_token_ids, loaded.draw_kernel, loaded.best_of),
        Delivery(tokenizer, loaded.eos_token_ids),
        loaded.info,
        config.recorder_steps,
        overlap=loaded.device.type == "cuda",
        reason=lambda: runner.reason,
    )
