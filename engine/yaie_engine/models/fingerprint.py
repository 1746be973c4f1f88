"""A short name for exactly these weights under exactly this configuration: cached KV of one fits no other."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import torch

SAMPLES = 1024


def fingerprint(model: Any) -> str:
    """32 hex digits over the configuration and, of every weight, name, shape, dtype and up to 1,024 spread values.

    The values are a sample: two fine-tunes of one model differ in every matrix they touch, so a sample tells them
    apart without reading gigabytes. It guards caches against mix-ups; it is no proof of origin.
    """
    digest = hashlib.sha256(_config_text(model.config).encode())
    for name, weight in sorted(model.state_dict().items()):
        if not isinstance(weight, torch.Tensor):
            continue
        digest.update(f"{name} {tuple(weight.shape)} {weight.dtype}".encode())
        flat = weight.detach().flatten()
        step = max(1, flat.numel() // SAMPLES)
        digest.update(flat[::step][:SAMPLES].contiguous().cpu().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:32]


def _config_text(config: Any) -> str:
    plain = config.to_dict()
    for name in ("_name_or_path", "transformers_version", "attn_implementation", "_attn_implementation"):
        plain.pop(name, None)
    return json.dumps(plain, sort_keys=True, default=str)
