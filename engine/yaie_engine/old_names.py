"""The names of Mini-YAIE that are still understood: each is replaced with one line that says the new one."""

from __future__ import annotations

import logging
from typing import Any

from .errors import ConfigError

logger = logging.getLogger("yaie")

RENAMED = {
    "max_batch_size": "max_num_seqs",
    "max_seq_len": "max_model_len",
    "num_gpu_blocks": "num_blocks",
    "max_blocks": "num_blocks",
    "enable_radix_cache": "enable_prefix_caching",
    "schedule_policy": "scheduling_policy",
}
SAMPLING_DEFAULTS = {
    "default_max_tokens": "max_tokens",
    "default_temperature": "temperature",
    "default_top_p": "top_p",
}
WITHOUT_EFFECT = ("max_prefill_batch_size", "max_decode_batch_size", "max_num_schedule_steps")
REFUSED = {
    "swap_space": (0, "(GiB) is now num_cpu_blocks, a number of blocks"),
    "tensor_parallel_size": (
        1,
        "is not supported: one engine uses one device; choose it with device='cuda:N' and start one engine per device",
    ),
}


def translate(values: dict[str, Any]) -> dict[str, Any]:
    """`values` under today's names.

    Raises:
        ConfigError: a name is given twice, once under its old name, or an old setting cannot be honoured.
    """
    out: dict[str, Any] = {}
    for name, value in values.items():
        if name in RENAMED:
            logger.warning("%s is now called %s", name, RENAMED[name])
            if RENAMED[name] in values:
                raise ConfigError(f"EngineConfig: {RENAMED[name]} is given twice, once as {name}")
            out[RENAMED[name]] = value
        elif name in SAMPLING_DEFAULTS:
            logger.warning("%s is now sampling_defaults[%r]", name, SAMPLING_DEFAULTS[name])
            out["sampling_defaults"] = {**out.get("sampling_defaults", {}), SAMPLING_DEFAULTS[name]: value}
        elif name in WITHOUT_EFFECT:
            logger.warning("%s has no effect: one token budget, max_num_batched_tokens, serves all", name)
        elif name in REFUSED:
            neutral, reason = REFUSED[name]
            if str(value).strip() not in (str(neutral), f"{neutral}.0"):
                raise ConfigError(f"EngineConfig: {name}={value!r} {reason}")
        elif name == "sampling_defaults" and isinstance(value, dict):
            out[name] = {**out.get(name, {}), **value}
        else:
            out[name] = value
    return out
