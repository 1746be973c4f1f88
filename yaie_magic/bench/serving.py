"""One load on one server, from a line's wishes to figures."""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Mapping
from typing import Any

from tqdm import tqdm

from yaie_magic.remote.address import parse_address
from yaie_magic.remote.client import Client
from yaie_magic.remote.faults import RemoteError
from yaie_magic.server_key import key_of

from . import latency
from .load import Load
from .options import Wanted
from .sender import send

ASK_S = 30.0


def loaded(asked: Wanted) -> dict[str, Any]:
    """Send it and give the figures, with what was asked for.

    Raises:
        ConfigError: the address is none.
        YaieError: the server cannot be reached, or does not answer a warm-up.
    """
    address = parse_address(asked.url)
    key = key_of(asked.key_env)
    load = _load(asked, asked.model or _first_model(Client(address, key, ASK_S)))
    with tqdm(total=load.count, unit="request", disable=None, leave=False, file=sys.stderr) as bar:
        outcomes = asyncio.run(send(load, address, key, lambda: _tick(bar)))
    found = {
        "base_url": address.root,
        "endpoint": load.path,
        "model_id": load.model,
        "num_prompts": load.count,
        "request_rate": load.rate if math.isfinite(load.rate) else "inf",
        "max_concurrency": load.most,
        "seed": load.seed,
        "goodput": dict(asked.goals),
        **latency.figures(outcomes, asked.goals),
    }
    return {**found, **latency.details(outcomes)} if asked.details else found


def _load(asked: Wanted, model: str) -> Load:
    values: Mapping[str, float] = asked.values
    return Load(
        model=model,
        count=int(values["num_prompts"]),
        rate=asked.rate,
        input_len=int(values["input_len"]),
        output_len=int(values["output_len"]),
        range_ratio=values["range_ratio"],
        seed=int(values["seed"]),
        warmups=int(values["num_warmups"]),
        most=int(values["max_concurrency"]),
        timeout=values["request_deadline"],
        chat=asked.chat,
        ignore_eos=asked.ignore_eos,
    )


def _first_model(client: Client) -> str:
    """The first that the server lists."""
    try:
        found = client.get_json("/v1/models")
    finally:
        client.close()
    try:
        name = found["data"][0]["id"]
    except (KeyError, IndexError, TypeError):
        name = None
    if not isinstance(name, str) or not name:
        raise RemoteError(f"{client.url} lists no model; name one with --model")
    return name


def _tick(bar: Any) -> None:
    bar.update()
